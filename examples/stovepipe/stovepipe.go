package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"go.uber.org/zap"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/consume"
	"github.com/tenantmq/tenantmq/examples/internal/git"
	"github.com/tenantmq/tenantmq/examples/internal/landing"
	"github.com/tenantmq/tenantmq/examples/internal/shell"
	"github.com/tenantmq/tenantmq/examples/internal/web"
	"github.com/tenantmq/tenantmq/publish"
	"github.com/tenantmq/tenantmq/tenants"
)

const (
	group = "stovepipe"
	// validateTopic's partition key is the queue: its heads are validated one
	// after the other, and offsets tell their order.
	validateTopic = "validate"
)

type validate struct {
	Commit string `json:"commit"`
}

// NewValidateHandler validates ingested heads.
func NewValidateHandler(cfg Config, store Store) consume.Handler {
	return consume.JSON(consume.Subscription{Topic: validateTopic, Group: group}, func(ctx context.Context, v validate, d consume.Delivery) error {
		queue := landing.Queue(d.Tenant)
		head, err := store.Get(ctx, queue, v.Commit)
		switch {
		case errors.Is(err, backend.ErrNotFound):
			return consume.Reject(err)
		case err != nil:
			return err
		case head.State != Pending: // a repeated delivery
			return nil
		}
		source := cfg.SourceOf(queue)
		result, err := shell.Run(ctx, source.Command, "QUEUE="+queue, "COMMIT="+v.Commit, "REPOSITORY="+source.Repository)
		switch {
		case err != nil:
			return err
		case !result.OK:
			return store.Decide(ctx, queue, v.Commit, Broken, d.Offset, result.Output)
		}
		return store.Decide(ctx, queue, v.Commit, Green, d.Offset, "")
	})
}

// NewDeadLetterHandler records heads as broken whose validation was given up.
func NewDeadLetterHandler(store Store) consume.Handler {
	sub := consume.Subscription{Topic: validateTopic + backend.DefaultDeadLetterSuffix, Group: group}
	return consume.JSON(sub, func(ctx context.Context, v validate, d consume.Delivery) error {
		failure, _ := d.Failure()
		return store.Decide(ctx, landing.Queue(d.Tenant), v.Commit, Broken, failure.OriginalOffset, "not validated: "+failure.LastError)
	})
}

// API is the HTTP face of the service.
type API struct {
	Config  Config
	Tenants tenants.Set
	Store   Store
}

// Routes returns the API's handler.
//
//	POST /ingest {"queue": …}  202: the head will be validated; 200: it is known, with its state
//	GET  /queues/{queue}       the last green commit
//
// Both answer 404, with the reason, for a queue outside MQ_TENANTS.
func (a API) Routes(log *zap.Logger) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("POST /ingest", web.JSON(log, a.ingest))
	mux.Handle("GET /queues/{queue}", web.JSON(log, a.lastGreen))
	return mux
}

func (a API) ingest(r *http.Request) (int, any, error) {
	var in struct{ Queue string }
	if err := web.Decode(r, &in); err != nil {
		return 0, nil, err
	}
	if in.Queue == "" {
		return 0, nil, &backend.FieldError{Field: "queue", Rule: "must not be empty"}
	}
	if err := a.Tenants.Check(landing.Tenant(in.Queue)); err != nil {
		return 0, nil, err
	}
	source := a.Config.SourceOf(in.Queue)
	commit, err := git.Repository(source.Repository).Resolve(r.Context(), source.Target)
	if errors.Is(err, git.ErrNoRef) {
		return 0, nil, fmt.Errorf("%w: head of queue %q: %w", backend.ErrNotFound, in.Queue, err)
	}
	if err != nil {
		return 0, nil, err
	}
	payload, err := json.Marshal(validate{commit})
	if err != nil {
		return 0, nil, err
	}
	head, added, err := a.Store.Add(r.Context(), in.Queue, commit, publish.Message{
		ID: publish.IntentID(commit, "ingested"), PartitionKey: in.Queue, Payload: payload,
	})
	if added {
		return http.StatusAccepted, head, err
	}
	return http.StatusOK, head, err
}

func (a API) lastGreen(r *http.Request) (int, any, error) {
	queue := r.PathValue("queue")
	if err := a.Tenants.Check(landing.Tenant(queue)); err != nil {
		return 0, nil, err
	}
	commit, err := a.Store.LastGreen(r.Context(), queue)
	return http.StatusOK, map[string]string{"queue": queue, "last_green": commit}, err
}
