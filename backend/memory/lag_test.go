package memory

import (
	"fmt"
	"testing"
	"time"

	"github.com/tenantmq/tenantmq/backend"
)

// Beyond what is counted, the first message of each partition left tells how
// old the oldest is.
func TestLagIsALowerBoundBeyond(t *testing.T) {
	b := newBench(t)
	b.join("group")
	b.publish("z old", "m")
	b.pass(time.Hour)
	ids := make([]string, backend.MaxLag-1)
	for i := range ids {
		ids[i] = fmt.Sprint(i)
	}
	b.publish("deep", ids...)
	want := backend.Lag{Messages: backend.MaxLag, Oldest: time.Hour}
	for _, more := range []bool{false, true} {
		if more {
			b.publish("deep", "one more")
			want.AtLeast = true
		}
		lag, err := b.Lag(t.Context(), tenant, changes, "group")
		if err != nil || lag != want {
			t.Errorf("%+v, %v, want %+v", lag, err, want)
		}
	}
}
