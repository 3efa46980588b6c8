package main

import (
	"fmt"
	"net/http"
	"strconv"

	"go.uber.org/zap"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/examples/internal/landing"
	"github.com/tenantmq/tenantmq/examples/internal/web"
	"github.com/tenantmq/tenantmq/publish"
	"github.com/tenantmq/tenantmq/tenants"
)

// Page sizes of a listing.
const (
	defaultLimit = 100
	maxLimit     = 1000
)

// API is the HTTP face of the service.
type API struct {
	Tenants tenants.Set
	Store   Store
}

// Routes returns the API's handler.
//
//	POST /land {"queue": …, "change": …}     202 accepted, 200 if it was already
//	GET  /requests/{id}                      one request with its history
//	GET  /queues/{queue}/requests            all, ?after=change&limit=0…1000, and how many in which state
func (a API) Routes(log *zap.Logger) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("POST /land", web.JSON(log, a.land))
	mux.Handle("GET /requests/{id}", web.JSON(log, a.request))
	mux.Handle("GET /queues/{queue}/requests", web.JSON(log, a.list))
	return mux
}

func (a API) land(r *http.Request) (int, any, error) {
	var in struct{ Queue, Change string }
	if err := web.Decode(r, &in); err != nil {
		return 0, nil, err
	}
	if in.Queue == "" {
		return 0, nil, &backend.FieldError{Field: "queue", Rule: "must not be empty"}
	}
	if err := landing.CheckChange(in.Change); err != nil {
		return 0, nil, err
	}
	if err := a.Tenants.Check(landing.Tenant(in.Queue)); err != nil {
		return 0, nil, err
	}
	request, created, err := a.Store.Accept(r.Context(), in.Queue, in.Change,
		message(requestTopic, in.Queue, publish.IntentID(requestID(in.Queue, in.Change), "accepted"), subject{in.Change}))
	if created {
		return http.StatusAccepted, request, err
	}
	return http.StatusOK, request, err
}

func (a API) request(r *http.Request) (int, any, error) {
	queue, change, err := parseRequestID(r.PathValue("id"))
	if err != nil {
		return 0, nil, err
	}
	if err := a.Tenants.Check(landing.Tenant(queue)); err != nil {
		return 0, nil, err
	}
	request, err := a.Store.Get(r.Context(), queue, change)
	return http.StatusOK, request, err
}

func (a API) list(r *http.Request) (int, any, error) {
	queue, limit := r.PathValue("queue"), defaultLimit
	if err := a.Tenants.Check(landing.Tenant(queue)); err != nil {
		return 0, nil, err
	}
	if s := r.FormValue("limit"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 || n > maxLimit {
			return 0, nil, &backend.FieldError{Field: "limit", Value: quoted(s), Rule: fmt.Sprintf("want 0 to %d", maxLimit)}
		}
		limit = n
	}
	states, err := a.Store.Count(r.Context(), queue)
	if err != nil {
		return 0, nil, err
	}
	requests, err := a.Store.List(r.Context(), queue, r.FormValue("after"), limit)
	return http.StatusOK, Listing{Queue: queue, States: states, Requests: requests}, err
}

// Listing of a queue's requests.
type Listing struct {
	Queue    string        `json:"queue"`
	States   map[State]int `json:"states"`
	Requests []Request     `json:"requests"`
}

func quoted(s string) string { return fmt.Sprintf("%.40q", s) }
