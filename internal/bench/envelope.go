package main

import "bytes"

// envelope is what the canned upstream needs of a JSON-RPC message: the bytes
// of its id and of its method, quotes included. A missing member is nil.
type envelope struct {
	id, method []byte
}

// scanEnvelope finds the top-level id and method of msg by walking its bytes.
// It checks nothing: what is not JSON gives an envelope of no meaning.
func scanEnvelope(msg []byte) envelope {
	var e envelope
	depth := 0
	for i := 0; i < len(msg); i++ {
		switch msg[i] {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case '"':
			end := stringEnd(msg, i)
			if depth == 1 {
				i = e.member(msg, i, end)
			} else {
				i = end - 1
			}
		}
	}
	return e
}

// member takes the member whose key is msg[start:end] if it is one of the two
// and returns the index of the last byte it has consumed.
func (e *envelope) member(msg []byte, start, end int) int {
	var into *[]byte
	switch string(msg[start:end]) {
	case `"id"`:
		into = &e.id
	case `"method"`:
		into = &e.method
	}
	colon := skipSpace(msg, end)
	if into == nil || colon >= len(msg) || msg[colon] != ':' {
		return end - 1
	}
	value := skipSpace(msg, colon+1)
	last := scalarEnd(msg, value)
	*into = msg[value:last]
	return last - 1
}

// stringEnd returns the index after the closing quote of the string at start.
func stringEnd(msg []byte, start int) int {
	for i := start + 1; i < len(msg); i++ {
		switch msg[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(msg)
}

// scalarEnd returns the index after the string or number at start.
func scalarEnd(msg []byte, start int) int {
	if start < len(msg) && msg[start] == '"' {
		return stringEnd(msg, start)
	}
	if n := bytes.IndexAny(msg[start:], ",} \t\r\n"); n >= 0 {
		return start + n
	}
	return len(msg)
}

func skipSpace(msg []byte, i int) int {
	for i < len(msg) && (msg[i] == ' ' || msg[i] == '\t' || msg[i] == '\n' || msg[i] == '\r') {
		i++
	}
	return i
}
