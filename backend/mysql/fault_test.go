package mysql

import (
	"errors"
	"testing"
	"time"
)

// A table that is gone does not come back by itself, nor does the version that
// is ours. A tool that swaps tables in two steps makes them look so for a
// moment.
func TestChangedTablesAreAFault(t *testing.T) {
	for name, tc := range map[string]struct {
		change, undo string
		want         error // nil: no fault
	}{
		"table dropped":        {change: "DROP TABLE queue_offsets", want: ErrSchemaMissing},
		"column renamed":       {change: "ALTER TABLE queue_messages CHANGE publish_id publisher BIGINT UNSIGNED NOT NULL", want: ErrSchemaOlder},
		"swapped in two steps": {change: "RENAME TABLE queue_messages TO aside", undo: "RENAME TABLE aside TO queue_messages"},
		"column of our own":    {change: "ALTER TABLE queue_messages ADD COLUMN note TEXT"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, db := onDB(t)
			faults := make(chan error, 10)
			q := newTestQueue(t, Params{DB: db, OnFault: func(err error) { faults <- err }})
			publish := func(n int) error {
				_, err := q.Publish(t.Context(), message(tenantA, topicA, "key", n))
				return err
			}
			if err := publish(1); err != nil {
				t.Fatal(err)
			}
			mustExec(t, db, tc.change)
			if err := publish(2); err == nil && (tc.want != nil || tc.undo != "") {
				t.Fatal("published, nothing was tested")
			}
			if tc.want != nil {
				select {
				case err := <-faults:
					if _, ok := errors.AsType[*FaultError](err); !ok || !errors.Is(err, tc.want) {
						t.Errorf("fault %v, want %v", err, tc.want)
					}
				case <-time.After(time.Minute):
					t.Fatal("no fault")
				}
				_ = publish(3) // is told once only
			}
			if tc.undo != "" {
				mustExec(t, db, tc.undo)
			}
			for end := time.Now().Add(time.Minute); q.suspecting.Load() && time.Now().Before(end); {
				time.Sleep(10 * time.Millisecond)
			}
			if len(faults) > 0 {
				t.Errorf("fault %v besides", <-faults)
			}
			if err := publish(4); err != nil && tc.want == nil {
				t.Errorf("publish afterwards: %v", err)
			}
		})
	}
}
