package telemetry_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/uber-go/tally/v4"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/tenantmq/tenantmq/examples/internal/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPrometheusReadsWhatIsCounted(t *testing.T) {
	var scope tally.Scope
	var metrics telemetry.Metrics
	app := fxtest.New(t, fx.NopLogger, fx.Provide(zap.NewNop), telemetry.Module, fx.Populate(&scope, &metrics))
	app.RequireStart()
	scope.Tagged(map[string]string{"topic": "my-topic.ü"}).Counter("messages").Inc(3)
	app.RequireStop() // hands over the rest
	w := httptest.NewRecorder()
	metrics.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, want := range []string{`messages{topic="my-topic.ü"} 3`, "go_goroutines ", "process_open_fds "} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("no %s in\n%.2000s", want, w.Body)
		}
	}
}
