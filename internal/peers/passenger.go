package peers

import (
	"encoding/binary"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/asker"
)

// Passenger is what a process has found out of a request that it passes on, and what the next one takes for true: who
// asks, and what is asked for.
type Passenger struct {
	Who    *asker.Who // on whose behalf the request comes; nil: nobody is known
	Remote string     // the address that it came from, "host:port"
	Run    string     // the id of the run that it is for
	Door   string     // which listener of the process it came to, by a name that both give it

	Waits time.Duration // for how long it may wait for an approval; zero: for as long as any request
}

// maxPassenger is how long a Passenger may be as it is sent.
const maxPassenger = 1 << 20

// passengerJSON is a Passenger as it is sent, in front of the request's body: its length by four bytes, the most
// significant one first, and JSON. What a process does not know it ignores: the next one may be newer.
type passengerJSON struct {
	Who    jsontext.Value `json:"who,omitempty"`
	Remote []byte         `json:"remote"`
	Run    []byte         `json:"run"`
	Door   string         `json:"door"`
	Waits  int64          `json:"waits,omitzero"` // in milliseconds
}

// whoJSON is on whose behalf a request comes. Texts are bytes: another principal must not become this one by characters
// that JSON can't carry.
type whoJSON struct {
	Subject []byte   `json:"subject"`
	Issuer  []byte   `json:"issuer"`
	Scopes  [][]byte `json:"scopes"`
	Claims  []byte   `json:"claims"`
}

var errLongPassenger = errors.New("passing a request on: too much is known of who asks")

// encode returns a Passenger as it is sent.
func (p *Passenger) encode() ([]byte, error) {
	wire := passengerJSON{Remote: []byte(p.Remote), Run: []byte(p.Run), Door: p.Door, Waits: p.Waits.Milliseconds()}
	var err error
	if p.Who != nil {
		who := whoJSON{Subject: []byte(p.Who.Subject), Issuer: []byte(p.Who.Issuer), Claims: p.Who.Claims}
		for _, scope := range p.Who.Scopes {
			who.Scopes = append(who.Scopes, []byte(scope))
		}
		wire.Who, err = json.Marshal(&who)
	}
	if err != nil {
		return nil, fmt.Errorf("passing a request on: %w", err)
	}
	text, err := json.Marshal(&wire)
	switch {
	case err != nil:
		return nil, fmt.Errorf("passing a request on: %w", err)
	case len(text) > maxPassenger:
		return nil, errLongPassenger
	}
	return append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(text)), uint32(len(text))), text...), nil
}

// decode reads a Passenger from the begin of a body. It returns how many bytes it was.
func decode(body io.Reader, known *askers) (p Passenger, n int64, err error) {
	var length [4]byte
	if _, err := io.ReadFull(body, length[:]); err != nil {
		return p, 0, fmt.Errorf("reading who asks: %w", err)
	}
	size := binary.BigEndian.Uint32(length[:])
	if size > maxPassenger {
		return p, 0, fmt.Errorf("reading who asks: %d bytes are too many", size)
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(body, text); err != nil {
		return p, 0, fmt.Errorf("reading who asks: %w", err)
	}
	var wire passengerJSON
	if err := json.Unmarshal(text, &wire); err != nil {
		return p, 0, fmt.Errorf("reading who asks: %w", err)
	}
	p = Passenger{Remote: string(wire.Remote), Run: string(wire.Run), Door: wire.Door, Waits: time.Duration(wire.Waits) * time.Millisecond}
	if len(wire.Who) > 0 {
		p.Who, err = known.read(wire.Who)
	}
	return p, int64(len(length) + len(text)), err
}

// What is remembered of those who ask.
const (
	maxAskers     = 1024
	maxAskerBytes = 8 << 20
)

// askers remembers on whose behalf requests came, so that those that say the same have the same pointer. The zero value
// is ready. It is safe for concurrent use.
type askers struct {
	mu    sync.Mutex // guards what follows
	all   map[string]*asker.Who
	bytes int // of what is in all
}

// read returns the one that text says.
func (a *askers) read(text []byte) (*asker.Who, error) {
	a.mu.Lock()
	who := a.all[string(text)]
	a.mu.Unlock()
	if who != nil {
		return who, nil
	}
	var wire whoJSON
	if err := json.Unmarshal(text, &wire); err != nil {
		return nil, fmt.Errorf("reading who asks: %w", err)
	}
	who = &asker.Who{Subject: string(wire.Subject), Issuer: string(wire.Issuer), Claims: wire.Claims}
	for _, scope := range wire.Scopes {
		who.Scopes = append(who.Scopes, string(scope))
	}
	a.put(string(text), who)
	return who, nil
}

// put remembers one; all others are forgotten once there are too many.
func (a *askers) put(text string, who *asker.Who) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if size := 2 * len(text); a.all == nil || len(a.all) >= maxAskers || a.bytes+size > maxAskerBytes {
		a.all, a.bytes = make(map[string]*asker.Who), 0
	}
	if a.all[text] == nil {
		a.all[text] = who
		a.bytes += 2 * len(text)
	}
}
