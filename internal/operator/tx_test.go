package operator

import (
	"errors"
	"fmt"
	"testing"

	"github.com/go-sql-driver/mysql"
)

// What another run may cure is tried again; what it cannot is told at once.
func TestConflictsAreToldFromOtherErrors(t *testing.T) {
	for _, c := range []struct {
		number   uint16
		message  string
		conflict bool
	}{
		{errLockDeadlock, "Deadlock found", true},
		{errLockWaitTimeout, "Lock wait timeout exceeded", true},
		{errCheckread, "Record has changed since last read", true},
		{errInterrupted, "vttablet: rpc error: code = Aborted desc = transaction 7: exceeded timeout: 30s", true},
		{errUnknown, "vttablet: rpc error: code = Aborted desc = transaction 7: ended", true},
		{errUnknown, "VT12001: unsupported: cross-shard", false},
		{errNoSuchTable, "Table 'mq.queue_messages' doesn't exist", false},
	} {
		err := fmt.Errorf("purge: %w", &mysql.MySQLError{Number: c.number, Message: c.message})
		if got := isConflict(err); got != c.conflict {
			t.Errorf("%v: %v", err, got)
		}
	}
	if isConflict(errors.New("invalid")) || isConflict(nil) {
		t.Error("what is not the database's is none")
	}
}
