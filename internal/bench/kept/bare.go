package kept

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver
	_ "modernc.org/sqlite"             // likewise
)

// bare is what a store writes to, without the store: a table of its own, and one connection.
type bare struct {
	db     *sql.DB
	insert *sql.Stmt
	folder string // "": it is not in one of its own
}

// committed is what is written by a bare commit.
var committed = []byte(strings.Repeat("x", 400))

// openBare opens the database of a store's URL, or a file as SQLite's are.
func openBare(ctx context.Context, store string) (b *bare, err error) {
	b = &bare{}
	driver, source, column, place := "pgx", store, "bytea", "$1"
	if strings.HasPrefix(store, "sqlite:") {
		if b.folder, err = os.MkdirTemp(filepath.Dir(strings.TrimPrefix(store, "sqlite:")), "bare"); err != nil {
			return nil, err
		}
		pragmas := url.Values{"_pragma": {"journal_mode(WAL)", "synchronous(FULL)"}}
		driver, source, column, place = "sqlite", "file:"+filepath.Join(b.folder, "bare.db")+"?"+pragmas.Encode(), "blob", "?"
	}
	if b.db, err = sql.Open(driver, source); err != nil {
		return nil, errors.Join(err, b.close())
	}
	b.db.SetMaxOpenConns(1)
	if _, err = b.db.ExecContext(ctx, "CREATE TABLE bare (bytes "+column+" NOT NULL)"); err == nil {
		b.insert, err = b.db.PrepareContext(ctx, "INSERT INTO bare VALUES ("+place+")")
	}
	if err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

// commit makes one.
func (b *bare) commit(ctx context.Context) error {
	_, err := b.insert.ExecContext(ctx, committed)
	return err
}

func (b *bare) close() (err error) {
	if b.db != nil {
		_, err = b.db.Exec("DROP TABLE IF EXISTS bare")
		err = errors.Join(err, b.db.Close())
	}
	if b.folder != "" {
		err = errors.Join(err, os.RemoveAll(b.folder))
	}
	return err
}
