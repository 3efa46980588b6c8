package main

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/tenantmq/tenantmq/tenants"
)

func call(t *testing.T, s Store, method, path, body string) (int, string) {
	t.Helper()
	set, err := tenants.New("fx", "q/with@odd:name")
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	API{Tenants: set, Store: s}.Routes(zap.NewNop()).ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	return w.Code, w.Body.String()
}

func TestLandThenShow(t *testing.T) {
	published := new(recorder)
	s := NewMemoryStore(published)
	for _, want := range []int{202, 200} {
		if status, body := call(t, s, "POST", "/land", `{"queue": "fx", "change": "feature/x"}`); status != want {
			t.Errorf("%d %s, want %d", status, body, want)
		}
	}
	if got := published.take(); len(got) != 1 || got[0] != "fx/request/fx/feature/x@fx:accepted" {
		t.Errorf("published %q", got)
	}
	status, body := call(t, s, "GET", "/requests/feature%2Fx@fx", "")
	var r Request
	if err := json.Unmarshal([]byte(body), &r); err != nil || status != 200 || r.ID != "feature/x@fx" || r.State != Accepted || len(r.History) != 1 {
		t.Errorf("%d %s %v", status, body, err)
	}
	status, body = call(t, s, "GET", "/queues/fx/requests", "")
	var l Listing
	if err := json.Unmarshal([]byte(body), &l); err != nil || status != 200 || l.States[Accepted] != 1 || len(l.Requests) != 1 {
		t.Errorf("%d %s %v", status, body, err)
	}
}

// A queue's name may hold what separates change and queue in an id.
func TestOddQueueNames(t *testing.T) {
	s := NewMemoryStore(new(recorder))
	if status, body := call(t, s, "POST", "/land", `{"queue": "q/with@odd:name", "change": "c"}`); status != 202 {
		t.Fatalf("%d %s", status, body)
	}
	if status, body := call(t, s, "GET", "/requests/c@q%2Fwith@odd:name", ""); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	if status, body := call(t, s, "GET", "/queues/q%2Fwith@odd:name/requests", ""); status != 200 || !strings.Contains(body, `"accepted":1`) {
		t.Errorf("%d %s", status, body)
	}
}

func TestBadRequestsStoreNothing(t *testing.T) {
	published := new(recorder)
	s := NewMemoryStore(published)
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"POST", "/land", `{"queue": "fx"`, 400, "want one JSON object"},
		{"POST", "/land", ``, 400, "want one JSON object"},
		{"POST", "/land", `{"change": "c"}`, 400, "queue: must not be empty"},
		{"POST", "/land", `{"queue": "fx"}`, 400, "change"},
		{"POST", "/land", `{"queue": "fx", "change": "../fx"}`, 400, "want a branch's name"},
		{"POST", "/land", `{"queue": "fx", "change": "c", "force": true}`, 400, "force"},
		{"POST", "/land", `{"queue": "FX", "change": "c"}`, 404, "MQ_TENANTS"},
		{"POST", "/land", `{"queue": "fx", "change": "` + strings.Repeat("c", 70000) + `"}`, 413, "at most 65536 bytes"},
		{"GET", "/land", ``, 405, ""},
		{"GET", "/requests/c", ``, 400, "want change@queue"},
		{"GET", "/requests/a%20b@fx", ``, 400, "want change@queue"},
		{"GET", "/requests/c@fx", ``, 404, "c@fx"},
		{"GET", "/requests/c@nobody", ``, 404, "nobody"},
		{"GET", "/queues/nobody/requests", ``, 404, "nobody"},
		{"GET", "/queues/fx/requests?limit=1001", ``, 400, "want 0 to 1000"},
		{"GET", "/queues/fx/requests?limit=x", ``, 400, "want 0 to 1000"},
		{"GET", "/nothing", ``, 404, ""},
	} {
		if status, body := call(t, s, c.method, c.path, c.body); status != c.status || !strings.Contains(body, c.want) {
			t.Errorf("%s %s %.60s: %d %s", c.method, c.path, c.body, status, body)
		}
	}
	if got := published.take(); len(got) != 0 {
		t.Errorf("published %q", got)
	}
}
