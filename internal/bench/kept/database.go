package kept

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"net/url"
	"strings"
)

// Database is a new database of PostgreSQL.
type Database struct {
	URL  string
	name string
	at   string // the URL of another one, of the same server
}

// NewDatabase makes a database on the server of another one, whose URL is given. Its user needs the right to.
func NewDatabase(ctx context.Context, beside string) (*Database, error) {
	u, err := url.Parse(beside)
	if err != nil {
		return nil, fmt.Errorf("reading the URL of a database: %w", err)
	}
	d := &Database{name: "fsm_proxy_bench_" + strings.ToLower(rand.Text()), at: beside}
	u.Path = "/" + d.name
	d.URL = u.String()
	return d, execute(ctx, beside, "CREATE DATABASE "+d.name)
}

// Drop removes the database, whoever still uses it.
func (d *Database) Drop() error {
	return execute(context.Background(), d.at, "DROP DATABASE "+d.name+" WITH (FORCE)")
}

// Runs is how many runs are stored, and how many of them another process has taken from the one that began them, whose
// fence is the first.
func (d *Database) Runs(ctx context.Context) (all, moved int, err error) {
	db, err := sql.Open("pgx", d.URL)
	if err != nil {
		return 0, 0, err
	}
	defer db.Close()
	err = db.QueryRowContext(ctx, "SELECT count(*), count(*) FILTER (WHERE fence > 1) FROM fsm_proxy.runs").Scan(&all, &moved)
	return all, moved, err
}

func execute(ctx context.Context, at, statement string) error {
	db, err := sql.Open("pgx", at)
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.ExecContext(ctx, statement)
	return err
}
