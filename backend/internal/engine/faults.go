package engine

import (
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/uber-go/tally/v4"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/tenantmq/tenantmq/tenants"
)

// faults reports the errors of the store: each kind of work at most once in
// faultInterval, with the number of those kept back.
type faults struct {
	log      *zap.Logger
	counters map[string]tally.Counter // by work; complete, and only read
	mu       sync.Mutex
	last     map[string]*fault
}

type fault struct {
	at     time.Time
	hidden int
}

const faultInterval = 10 * time.Second

// works are the kinds of work, as they are reported.
var works = []string{
	"discover", "advance", "settle", "renew", "release", "beat", "leave", "control", "collect", "purge", "lag",
}

func newFaults(log *zap.Logger, scope tally.Scope) *faults {
	f := &faults{log: log, counters: make(map[string]tally.Counter), last: make(map[string]*fault)}
	for _, work := range works {
		f.counters[work] = scope.Tagged(map[string]string{"work": work}).Counter("store_errors")
		f.last[work] = new(fault)
	}
	return f
}

func (f *faults) report(work string, tenant tenants.ID, err error) {
	f.counters[work].Inc(1)
	f.mu.Lock()
	last := f.last[work]
	now := time.Now()
	if now.Sub(last.at) < faultInterval {
		last.hidden++
		f.mu.Unlock()
		return
	}
	hidden := last.hidden
	last.at, last.hidden = now, 0
	f.mu.Unlock()
	fields := []zap.Field{zap.String("work", work), zap.Error(err)}
	if tenant != "" {
		fields = append(fields, zap.String("tenant", string(tenant)))
	}
	if hidden > 0 {
		fields = append(fields, zap.Int("more_like_it", hidden))
	}
	f.log.Warn("store error, retrying", fields...)
}

// pause is how long to wait after an error of the store.
func (f *faults) pause() time.Duration {
	return 50*time.Millisecond + rand.N(200*time.Millisecond)
}

// Quiet lets a logger write at most [MaxLines] lines a second of one text and
// level, whatever their fields: a flood of dead letters, or of leases lost after
// a stall, hides nothing else and fills no disk. The metrics count them all.
func Quiet(log *zap.Logger) *zap.Logger {
	return log.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(core, time.Second, MaxLines, 0)
	}))
}

// MaxLines is documented at [Quiet].
const MaxLines = 20

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
