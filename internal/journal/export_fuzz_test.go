package journal_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/journal/memory"
)

// FuzzImport reads exports of whoever writes them: what is taken is exported again, and is the same when that is read.
func FuzzImport(f *testing.F) {
	f.Add([]byte(`{"run":{"id":"x","state":"s","policy":"p"}}` + "\n" + `{"record":{"seq":1,"hash":"","text":"{}"}}` + "\n" + `{"end":"x"}`))
	f.Add([]byte(`{"object":{"kind":"policy","name":"cA==","bytes":""}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		ctx, s := context.Background(), memory.New(0)
		done, _ := journal.Import(ctx, s, bytes.NewReader(text)) // what is wrong with it is told
		again := memory.New(0)
		for _, id := range done.Runs {
			var out, same bytes.Buffer
			if err := (&journal.Exporter{From: s, To: &out, Needs: needsNothing}).Run(ctx, id); err != nil {
				t.Fatal(err)
			}
			if got, err := journal.Import(ctx, again, bytes.NewReader(out.Bytes())); err != nil || len(got.Runs) != 1 {
				t.Fatalf("%s: %v, %v", out.Bytes(), got, err)
			}
			if err := (&journal.Exporter{From: again, To: &same, Needs: needsNothing}).Run(ctx, id); err != nil || !bytes.Equal(out.Bytes(), same.Bytes()) {
				t.Fatalf("%s\n%s\n%v", out.Bytes(), same.Bytes(), err)
			}
		}
	})
}
