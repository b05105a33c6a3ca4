package postgres

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// SQLSTATEs (https://www.postgresql.org/docs/current/errcodes-appendix.html).
const (
	readOnlyTransaction   = "25006" // of a standby, and where default_transaction_read_only is on
	insufficientPrivilege = "42501"
	objectInUse           = "55006"
	noSuchStatement       = "26000"
	duplicateStatement    = "42P05"
)

// advise adds to why a database cannot be opened, or read, what to do about it.
func advise(err error) error {
	switch sqlState(err) {
	case readOnlyTransaction:
		return fmt.Errorf("%w: the database can be read only: name the primary, not a standby of it, and see that default_transaction_read_only is off", err)
	case insufficientPrivilege:
		return fmt.Errorf("%w: the role lacks a right: let it own the schema fsm_proxy, or, before that is there, GRANT CREATE ON DATABASE to it", err)
	case noSuchStatement, duplicateStatement:
		return fmt.Errorf("%w: it was prepared over another connection, as behind a pooler that lends them out by transaction: have that carry prepared statements (PgBouncer 1.21: max_prepared_statements), or add default_query_exec_mode=exec to the URL", err)
	}
	return err
}

// connectAnew has no connection used again if one of them can only read: after a failover the primary may be elsewhere, and a
// session stays read only if it began so, whatever is set for the database since.
func (s *Store) connectAnew(err error) {
	if sqlState(err) == readOnlyTransaction {
		s.pool.Reset()
	}
}

// sqlState is that of what the database has answered, empty where it has not.
func sqlState(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}
