package web_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/examples/internal/telemetry"
	"github.com/tenantmq/tenantmq/examples/internal/web"
	"github.com/tenantmq/tenantmq/mqfx"
	"github.com/tenantmq/tenantmq/tenants"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestErrorsBecomeStatuses(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		body   string
	}{
		{nil, 202, `"done"`},
		{&backend.FieldError{Field: "queue", Rule: "must not be empty"}, 400, `{"error":"queue: must not be empty"}`},
		{fmt.Errorf("ask: %w", tenants.ErrUnknownTenant), 404, `{"error":"ask: unknown tenant"}`},
		{backend.ErrNotFound, 404, `{"error":"not found"}`},
		{errors.New("password of the database is wrong"), 500, `{"error":"internal error; try again"}`},
	} {
		core, logged := observer.New(zap.ErrorLevel)
		w := httptest.NewRecorder()
		web.JSON(zap.New(core), func(*http.Request) (int, any, error) { return 202, "done", c.err }).
			ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		if w.Code != c.status || strings.TrimSpace(w.Body.String()) != c.body || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%v: %d %s", c.err, w.Code, w.Body)
		}
		if (logged.Len() == 1) != (c.status == 500) {
			t.Errorf("%v: logged %v", c.err, logged.All())
		}
	}
}

func TestDecodeRefusesBadBodies(t *testing.T) {
	decode := func(body string) (int, string) {
		w := httptest.NewRecorder()
		web.JSON(zap.NewNop(), func(r *http.Request) (int, any, error) {
			var in struct{ Queue string }
			return 200, &in, web.Decode(r, &in)
		}).ServeHTTP(w, httptest.NewRequest("POST", "/", strings.NewReader(body)))
		return w.Code, w.Body.String()
	}
	if status, body := decode(`{"queue": "fx"}` + strings.Repeat(" ", 1000)); status != 200 || !strings.Contains(body, "fx") {
		t.Errorf("good body: %d %s", status, body)
	}
	for _, c := range []struct {
		body, want string
		status     int
	}{
		{"", "EOF", 400},
		{`{"queue": "fx"`, "unexpected EOF", 400},
		{"queue=fx", "invalid character", 400},
		{`["fx"]`, "array", 400},
		{`{"queue": 1}`, "number", 400},
		{`{"queu": "fx"}`, `unknown field \"queu\"`, 400},
		{`{"queue": "fx"} {}`, "data after the object", 400},
		{`{"queue": "fx"} x`, "invalid character", 400},
		{`{"queue": "` + strings.Repeat("x", web.MaxBody) + `"}`, "at most 65536 bytes", 413},
		{`{}` + strings.Repeat(" ", web.MaxBody), "at most 65536 bytes", 413},
	} {
		if status, body := decode(c.body); status != c.status || !strings.Contains(body, c.want) {
			t.Errorf("%.40s: %d %s", c.body, status, body)
		}
	}
}

// service is what a server belongs to.
var service = fx.Options(fx.NopLogger, fx.Provide(zap.NewNop), telemetry.Module, mqfx.Module, mqfx.WithConfig(mqfx.Config{Backend: mqfx.BackendMemory}))

func TestServerStartsAndStopsWithTheApplication(t *testing.T) {
	address := free(t)
	app := fxtest.New(t, service, fx.Invoke(func(p web.ServerParams) { web.Serve(p, address, http.NewServeMux()) }))
	app.RequireStart()
	for _, path := range []string{"/livez", "/readyz", "/metrics"} {
		response, err := http.Get("http://" + address + path)
		if err != nil || response.StatusCode != 200 {
			t.Fatalf("%s: %+v, %v", path, response, err)
		}
		response.Body.Close()
	}
	app.RequireStop()
	http.DefaultClient.CloseIdleConnections()
	if _, err := net.Dial("tcp", address); err == nil {
		t.Error("still listening")
	}
}

func TestServerRefusesAnAddressInUse(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	app := fx.New(service, fx.Invoke(func(p web.ServerParams) { web.Serve(p, listener.Addr().String(), http.NewServeMux()) }))
	if err := app.Start(t.Context()); err == nil || !strings.Contains(err.Error(), listener.Addr().String()) {
		t.Errorf("got %v", err)
	}
}

func free(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}
