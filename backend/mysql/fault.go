package mysql

import (
	"errors"
	"time"

	"go.uber.org/zap"
)

// faultConfirm is how long the tables must have been wrong before it counts: a
// migration tool may swap them in two steps.
const faultConfirm = 3 * time.Second

// suspect looks at the tables once a statement failed for what they are. When
// they were dropped, or are those of another version, and stay so, no retry
// helps: Params.OnFault is told.
func (q *Queue) suspect(err error) {
	if !isNoSuchTable(err) && !hasNumber(err, errBadField) || !q.suspecting.CompareAndSwap(false, true) {
		return
	}
	ctx, leave, enterErr := q.enter(q.ctx)
	if enterErr != nil { // closing
		q.suspecting.Store(false)
		return
	}
	go func() {
		defer leave()
		defer q.suspecting.Store(false)
		for confirmed := false; ; confirmed = true {
			conn, err := q.db.Conn(ctx)
			if err != nil {
				return // the next failure asks again
			}
			err = errors.Join(q.verifySchema(ctx, conn), probeTables(ctx, conn))
			_ = conn.Close()
			if !isSchemaError(err) {
				return
			}
			if confirmed {
				q.fault(err)
				return
			}
			select {
			case <-time.After(faultConfirm):
			case <-ctx.Done():
				return
			}
		}
	}()
}

func isSchemaError(err error) bool {
	return errors.Is(err, ErrSchemaMissing) || errors.Is(err, ErrSchemaOlder) || errors.Is(err, ErrSchemaNewer)
}

// fault says once that the queue cannot go on.
func (q *Queue) fault(err error) {
	q.faultOnce.Do(func() {
		q.log.Error("the queue's tables are not those it works on any more", zap.Error(err))
		if q.onFault != nil {
			q.onFault(&FaultError{err})
		}
	})
}

// FaultError is what Params.OnFault is told. It wraps [ErrSchemaMissing],
// [ErrSchemaOlder] or [ErrSchemaNewer].
type FaultError struct{ Err error }

func (e *FaultError) Error() string {
	return "the queue's tables have changed under it: " + e.Err.Error()
}

func (e *FaultError) Unwrap() error { return e.Err }
