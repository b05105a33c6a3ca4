//go:build !windows

package sqlite

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
)

// killedEnv has the test's binary be the process that is killed: its value is the file.
const killedEnv = "FSM_PROXY_TEST_JOURNAL"

func TestMain(m *testing.M) {
	if path := os.Getenv(killedEnv); path != "" {
		fmt.Println(writeOn(path))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// writeOn writes records of four runs, without end, and says of each that it is durable.
func writeOn(path string) error {
	s, err := Open(Config{Path: path, Holder: "the one that is killed"})
	if err != nil {
		return err
	}
	w, failed := journal.NewCommitter(journal.CommitterConfig{Store: s}), make(chan error)
	for i := range 4 {
		id := fmt.Sprint("run", i)
		row, err := s.Take(context.Background(), id)
		if err != nil {
			if _, err := w.Submit(journal.Change{Run: id, Begin: &journal.Row{ID: id}, Head: &journal.Head{}}, journal.Now); err != nil {
				return err
			}
		}
		go func() {
			for last := row.Last; ; {
				text := []byte(strings.Repeat("x", int(last.Seq*7919%3000)))
				last = journal.NewChain(nil).Next(id, last, text)
				ticket, err := w.Submit(journal.Change{Run: id, Head: &journal.Head{At: last, State: fmt.Sprint(last.Seq)},
					Records: []journal.Record{{Seq: last.Seq, Hash: last.Hash, Bytes: text}}}, journal.Now)
				if err == nil {
					<-ticket.Done()
					err = ticket.Err()
				}
				if err != nil {
					failed <- err
					return
				}
				fmt.Println(id, last.Seq, last.Hash)
			}
		}()
	}
	return <-failed
}

// A process that is killed while it writes has lost nothing that it was told is durable, and the next one goes on there.
func TestKilled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs.db")
	durable := map[string]journal.Point{}
	for n := range 25 {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), killedEnv+"="+path)
		out, err := c.StdoutPipe()
		if err == nil {
			err = c.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for i := 0; lines.Scan(); i++ {
			var id string
			var hash []byte
			p := journal.Point{}
			if _, err := fmt.Sscanf(lines.Text(), "%s %d %x", &id, &p.Seq, &hash); err != nil {
				t.Fatalf("%s: %v", lines.Text(), err)
			}
			if copy(p.Hash[:], hash); p.Seq <= durable[id].Seq {
				t.Fatalf("%s: record %d again, after %d", id, p.Seq, durable[id].Seq)
			}
			if durable[id] = p; i == 10+n*3 {
				if err := c.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		_ = c.Wait() // it was killed
		s, err := Open(Config{Path: path, Holder: "a test"})
		if err != nil {
			t.Fatal(err)
		}
		for id, last := range durable {
			row, err := s.Row(context.Background(), id)
			if err != nil {
				t.Fatal(err)
			}
			if row.Last.Seq < last.Seq || row.At != row.Last || row.State != fmt.Sprint(row.Last.Seq) {
				t.Fatalf("%s: %+v, and %d was durable", id, row, last.Seq)
			}
			if fault, err := journal.NewChain(nil).Verify(&row, journal.All(context.Background(), s, id), last); fault != nil || err != nil {
				t.Fatal(fault, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if len(durable) != 4 {
		t.Errorf("only %d runs were written", len(durable))
	}
}
