package kept

import "slices"

// pair is an element of two sequences, by its places: -1 where one of them lacks it.
type pair struct{ first, second int }

func (p pair) both() bool { return p.first >= 0 && p.second >= 0 }

// maxEdits bounds how much sequences are compared: those that differ in more places are told apart as a whole, behind
// what they begin with and before what they end with alike.
const maxEdits = 2000

// align lines two sequences up: as many of their elements as can be are the same, in both in one order. Of those between
// two that are the first's come first.
func align(a, b []int) []pair {
	begin, end := 0, 0
	for begin < min(len(a), len(b)) && a[begin] == b[begin] {
		begin++
	}
	for end < min(len(a), len(b))-begin && a[len(a)-1-end] == b[len(b)-1-end] {
		end++
	}
	var out []pair
	i, j := 0, 0
	upTo := func(x, y int) {
		for ; i < x; i++ {
			out = append(out, pair{i, -1})
		}
		for ; j < y; j++ {
			out = append(out, pair{-1, j})
		}
	}
	same := func(x, y int) {
		upTo(x, y)
		out = append(out, pair{x, y})
		i, j = x+1, y+1
	}
	for n := range begin {
		same(n, n)
	}
	for _, p := range common(a[begin:len(a)-end], b[begin:len(b)-end]) {
		same(begin+p.first, begin+p.second)
	}
	for n := end; n > 0; n-- {
		same(len(a)-n, len(b)-n)
	}
	upTo(len(a), len(b))
	return out
}

// common is a longest common subsequence, by E. Myers, "An O(ND) Difference Algorithm and Its Variations" (1986); none
// where the sequences differ in too many places.
func common(a, b []int) []pair {
	most := min(len(a)+len(b), maxEdits)
	far := make([]int, 2*most+3) // how far along a each diagonal, x-y, is reached; the one of 0 is in the middle
	var trace [][]int            // what far was before each number of edits
	for d := 0; d <= most; d++ {
		trace = append(trace, slices.Clone(far[most+1-d:most+2+d]))
		for k := -d; k <= d; k += 2 {
			was := from(far, most+1, d, k)
			x := far[most+1+was]
			if was < k {
				x++
			}
			for x < len(a) && x-k < len(b) && a[x] == b[x-k] {
				x++
			}
			if far[most+1+k] = x; x >= len(a) && x-k >= len(b) {
				return back(trace, len(a), len(b))
			}
		}
	}
	return nil
}

// from is the diagonal from which the d-th edit leads to diagonal k: k+1 for an element that the second has, k-1 for one of
// the first. middle is the place of diagonal 0.
func from(far []int, middle, d, k int) int {
	if d == 0 {
		return k
	}
	if k == -d || k != d && far[middle+k-1] < far[middle+k+1] {
		return k + 1
	}
	return k - 1
}

// back goes back from the ends, and returns what is the same on the way.
func back(trace [][]int, x, y int) (out []pair) {
	for d := len(trace) - 1; d >= 0; d-- {
		k, fromX, fromY := x-y, 0, 0
		if d > 0 {
			was := from(trace[d], d, d, k)
			fromX = trace[d][d+was]
			fromY = fromX - was
		}
		startX, startY := fromX, fromY
		switch {
		case d == 0:
		case fromX-fromY > k:
			startY++
		default:
			startX++
		}
		for x > startX && y > startY {
			x, y = x-1, y-1
			out = append(out, pair{x, y})
		}
		x, y = fromX, fromY
	}
	slices.Reverse(out)
	return out
}
