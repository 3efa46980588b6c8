// Package web is the little HTTP that the example services share: JSON in and
// out, errors that say what to do, and a server that starts and stops with Fx.
package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"go.uber.org/zap"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/tenants"
)

// MaxBody is the largest request body in bytes.
const MaxBody = 64 << 10

// Func answers a request with a status and a JSON body. An error is answered
// with the status that fits: 400 for [backend.ErrInvalid], 404 for
// [tenants.ErrUnknownTenant] and [backend.ErrNotFound], 413 for a body over
// MaxBody; any other is logged and answered with 500, without its text.
type Func func(r *http.Request) (status int, body any, err error)

// JSON makes an http.Handler of f.
func JSON(log *zap.Logger, f Func) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, MaxBody)
		status, body, err := f(r)
		if err != nil {
			reason := err.Error()
			if status = statusOf(err); status == http.StatusInternalServerError {
				log.Error("request", zap.String("method", r.Method), zap.String("path", r.URL.Path), zap.Error(err))
				reason = "internal error; try again"
			}
			body = map[string]string{"error": reason}
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body) // the client is gone
	})
}

func statusOf(err error) int {
	switch tooLarge := (*http.MaxBytesError)(nil); {
	case errors.As(err, &tooLarge):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, backend.ErrInvalid):
		return http.StatusBadRequest
	case errors.Is(err, tenants.ErrUnknownTenant), errors.Is(err, backend.ErrNotFound):
		return http.StatusNotFound
	}
	return http.StatusInternalServerError
}

// Decode reads a body that is one JSON object without unknown fields.
func Decode(r *http.Request, into any) error {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil {
		if _, err = d.Token(); errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = errors.New("data after the object")
		}
	}
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return fmt.Errorf("body: %w: at most %d bytes", err, MaxBody)
	}
	return &backend.FieldError{Field: "body", Value: strings.TrimPrefix(err.Error(), "json: "), Rule: "want one JSON object"}
}
