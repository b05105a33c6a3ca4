package journal

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"fmt"
	"hash"
	"iter"
)

// Hash is a SHA-256, or an HMAC with it (RFC 2104).
type Hash [sha256.Size]byte

// String is the hash in hexadecimal digits.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText implements [encoding.TextMarshaler]: no hash is no text.
func (h Hash) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, h.Bytes()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (h *Hash) UnmarshalText(text []byte) error {
	b, err := hex.AppendDecode(nil, text)
	if err == nil && len(b) != 0 && len(b) != len(h) {
		err = fmt.Errorf("a hash has %d bytes, not %d", len(h), len(b))
	}
	if *h = (Hash{}); err == nil {
		copy(h[:], b)
	}
	return err
}

// Bytes are the hash as stores keep it: none for no hash.
func (h Hash) Bytes() []byte {
	if h.IsZero() {
		return []byte{}
	}
	return h[:]
}

// IsZero reports whether it is no hash.
func (h Hash) IsZero() bool { return h == Hash{} }

// Chain hashes the records of runs, each with the hash of the one before: who changes one changes all that follow it.
// Without a key anybody can do that; with one, who has the key.
type Chain struct{ key []byte }

// NewChain returns a chain by a key, nil for none.
func NewChain(key []byte) Chain { return Chain{key} }

// KeyID tells keys apart, "" for none; it does not tell the key.
func (c Chain) KeyID() string {
	if c.key == nil {
		return ""
	}
	mac := hmac.New(sha256.New, c.key)
	mac.Write([]byte("fsm-proxy key id"))
	return hex.EncodeToString(mac.Sum(nil)[:8])
}

// Next is the hash of a run's next record: of the run, its number, the hash before it and its bytes.
func (c Chain) Next(run string, before Point, bytes []byte) Point {
	var h hash.Hash
	if c.key == nil {
		h = sha256.New()
	} else {
		h = hmac.New(sha256.New, c.key)
	}
	var head [256]byte
	b := append(head[:0], "fsm-proxy record\n"...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(run)))
	b = append(b, run...)
	b = binary.BigEndian.AppendUint64(b, before.Seq+1)
	b = append(b, before.Hash[:]...)
	h.Write(b)
	h.Write(bytes)
	next := Point{Seq: before.Seq + 1}
	h.Sum(next.Hash[:0])
	return next
}

// Damage is what is wrong with a journal.
type Damage string

// What may be. Damages are told apart as far as what is left of a journal tells them.
const (
	Edited     Damage = "edited"      // the bytes of a record are not those that were hashed
	Reordered  Damage = "reordered"   // a record stands where another one stood
	Duplicated Damage = "duplicated"  // a record is there twice
	Gap        Damage = "gap"         // records are missing before this one
	CutTail    Damage = "cut tail"    // records are missing at the end
	OtherHead  Damage = "other row"   // the run's row does not tell what its records do
	NotByKey   Damage = "not by key"  // hashed without the key: written by somebody who does not have it
	OtherKey   Damage = "another key" // hashed by another key than the one given
	KeyWanted  Damage = "key wanted"  // hashed by a key, and none is given
	Gone       Damage = "gone"        // the run is not in the store
	NoPolicy   Damage = "no policy"   // one by which a record is read is missing, or another one
)

// Fault is a damage and where it is.
type Fault struct {
	Run    string
	Seq    uint64
	Damage Damage
	Why    string
}

func (f *Fault) Error() string {
	return fmt.Sprintf("run %s, record %d: %s: %s", f.Run, f.Seq, f.Damage, f.Why)
}

// Numbered is what each record says of itself, for [Chain.Verify]: of which run it is, which number it has, and by
// which key the run is hashed.
type Numbered struct {
	Run string `json:"run"`
	Seq uint64 `json:"seq"`
	Key string `json:"key"`
}

// Verify looks through the records of a run, as they are kept, and returns the first fault, nil where there is none.
// anchors are points of the journal that were kept elsewhere.
func (c Chain) Verify(r *Row, records iter.Seq2[Record, error], anchors ...Point) (fault *Fault, err error) {
	at, head := r.Base, r.At.Seq == 0 || r.At == r.Base
	wanted := make(map[uint64]Hash, len(anchors))
	for _, a := range anchors {
		wanted[a.Seq] = a.Hash
	}
	say := func(seq uint64, d Damage, why string) *Fault { return &Fault{r.ID, seq, d, why} }
	const anew = "the anchor has another hash: the journal was written anew since"
	if want, ok := wanted[r.Base.Seq]; ok && want != r.Base.Hash {
		return say(r.Base.Seq, Edited, anew), nil
	}
	for x, err := range records {
		if err != nil {
			return nil, err
		}
		switch {
		case x.Seq <= at.Seq:
			return say(x.Seq, Duplicated, "there is another one of this number"), nil
		case x.Seq != at.Seq+1:
			if f := repeats(r, at, &x); f != nil {
				return f, nil
			}
			return say(x.Seq, Gap, fmt.Sprintf("the one before it is %d", at.Seq)), nil
		}
		if next := c.Next(r.ID, at, x.Bytes); next.Hash != x.Hash {
			return c.tell(r, at, &x), nil
		}
		at = Point{x.Seq, x.Hash}
		if at == r.At {
			head = true
		}
		if want, ok := wanted[x.Seq]; ok && want != x.Hash {
			return say(x.Seq, Edited, anew), nil
		}
		delete(wanted, x.Seq)
	}
	for seq := range wanted {
		if seq > at.Seq {
			return say(at.Seq, CutTail, fmt.Sprintf("the anchor knows record %d", seq)), nil
		}
	}
	switch {
	case r.At.Seq > at.Seq || r.Last.Seq > at.Seq:
		return say(at.Seq, CutTail, fmt.Sprintf("the row knows record %d", max(r.At.Seq, r.Last.Seq))), nil
	case !head:
		return say(r.At.Seq, OtherHead, "the row has another hash of this record"), nil
	}
	return nil, nil
}

// repeats returns the fault of a record that says that it is one of those up to a point, which are where they were: it
// is a copy. Stores have no two records of one number; so a copy has another one. nil: it says something else.
func repeats(r *Row, at Point, x *Record) *Fault {
	var says Numbered
	if json.Unmarshal(x.Bytes, &says, jsontext.AllowDuplicateNames(true)) != nil || says.Run != r.ID || says.Seq <= r.Base.Seq || says.Seq > at.Seq {
		return nil
	}
	return &Fault{r.ID, x.Seq, Duplicated, fmt.Sprintf("it says that it is record %d, which stands before it", says.Seq)}
}

// tell says what is wrong with a record whose hash is not that of its bytes behind a point.
func (c Chain) tell(r *Row, at Point, x *Record) *Fault {
	if f := repeats(r, at, x); f != nil {
		return f
	}
	f := &Fault{Run: r.ID, Seq: x.Seq, Damage: Edited, Why: "its hash is not that of its bytes and the hash before it"}
	var says Numbered
	if json.Unmarshal(x.Bytes, &says, jsontext.AllowDuplicateNames(true)) != nil {
		return f
	}
	plain := Chain{}.Next(r.ID, at, x.Bytes).Hash == x.Hash
	switch {
	case says.Seq != 0 && (says.Run != r.ID || says.Seq != x.Seq):
		f.Damage, f.Why = Reordered, fmt.Sprintf("it says that it is record %d of run %s", says.Seq, says.Run)
	case c.key != nil && plain:
		f.Damage, f.Why = NotByKey, "it is hashed without the key: who wrote it does not have that"
	case says.Key == c.KeyID():
	case c.key == nil:
		f.Damage, f.Why = KeyWanted, "it is hashed by the key "+says.Key+", and none is given"
	case says.Key != "":
		f.Damage, f.Why = OtherKey, "it is hashed by the key "+says.Key+", and the one given is "+c.KeyID()
	}
	return f
}
