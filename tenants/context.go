package tenants

import "context"

type contextKey struct{}

// NewContext returns a context that carries id. A handler's context carries the
// tenant of the message it handles.
func NewContext(ctx context.Context, id ID) context.Context {
	return context.WithValue(ctx, contextKey{}, id)
}

// FromContext returns the tenant put there by [NewContext], if any.
func FromContext(ctx context.Context) (ID, bool) {
	id, ok := ctx.Value(contextKey{}).(ID)
	return id, ok
}
