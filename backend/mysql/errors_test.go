package mysql

import (
	"errors"
	"testing"

	"github.com/go-sql-driver/mysql"
)

// A keyspace and a server differ in what they say of a missing table.
func TestMissingTableIsToldFromOtherErrors(t *testing.T) {
	for _, tc := range []struct {
		number  uint16
		message string
		want    bool
	}{
		{1146, "Table 'mq.queue_offsets' doesn't exist", true},
		{1105, "table queue_offsets not found", true},
		{1105, "target: mq.-80.primary: vttablet: rpc error: code = Aborted desc = transaction 5: not found", false},
		{1105, "keyspace mq not found in vschema", false},
		{1054, "Unknown column", false},
	} {
		if got := isNoSuchTable(&mysql.MySQLError{Number: tc.number, Message: tc.message}); got != tc.want {
			t.Errorf("%d %s: %v", tc.number, tc.message, got)
		}
	}
	if isNoSuchTable(errors.New("table queue_offsets not found")) {
		t.Error("an error that no server sent")
	}
}
