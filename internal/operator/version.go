package operator

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenantmq/tenantmq/backend/mysql"
)

// CheckSchema returns an error unless the queue accepts the database: see
// [mysql.Queue.Verify] for its errors, [mysql.ErrSchemaMissing],
// [mysql.ErrSchemaOlder] and [mysql.ErrSchemaNewer] among them. Whatever writes
// calls it first: what statements of this release do to tables of another, nobody
// knows. Once it has passed it is not looked at again.
func (o *Operator) CheckSchema(ctx context.Context) error {
	if o.checked.Load() {
		return nil
	}
	err := o.q.Verify(ctx)
	switch kind := schemaKind(err); {
	case err == nil:
		o.checked.Store(true)
		return nil
	case kind != nil: // in words for an operator rather than for who writes a service
		return fmt.Errorf("nothing was changed: %w: %s says what to do", kind, mqctl("doctor"))
	}
	return fmt.Errorf("nothing was changed: %w", err)
}

// schemaKind is what is wrong with the tables according to an error, or nil.
func schemaKind(err error) error {
	for _, kind := range []error{mysql.ErrSchemaMissing, mysql.ErrSchemaOlder, mysql.ErrSchemaNewer} {
		if errors.Is(err, kind) {
			return kind
		}
	}
	return nil
}
