package consume

import (
	"context"
	"fmt"
	"runtime"
	"strings"
)

// PanicError is the error of an attempt whose handler panicked.
type PanicError struct {
	Value any
	// Stack begins where the panic happened and ends at the handler, or at the
	// outermost middleware inside of what has recovered.
	Stack string
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v\n\n%s", e.Value, e.Stack) }

// Unwrap returns the panic's value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Recover is a middleware that turns a panic of the handler into a [*PanicError]:
// all that is outside of it sees an error. A runner without it does the same,
// around all middlewares. Goexit passes through it.
func Recover() Middleware {
	return Middleware{Name: "recover", Priority: PriorityRecover, Wrap: func(next Handler) Handler {
		return Wrap(next, func(ctx context.Context, d Delivery) error { return recovered(ctx, next, d) })
	}}
}

// recovered is, inside of Recover, where the stack of a panic ends; see
// callers.
func recovered(ctx context.Context, next Handler, d Delivery) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = newPanicError(value)
		}
	}()
	return next.Handle(ctx, d)
}

// newPanicError is called by the deferred function that recovered value, while
// the frames of the panic are still on the stack.
func newPanicError(value any) *PanicError {
	const depth = 128
	pcs := make([]uintptr, depth)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
	var b strings.Builder
	panicked, inside := false, false
	for {
		f, more := frames.Next()
		switch {
		case strings.HasSuffix(f.Function, callers[0]), strings.HasSuffix(f.Function, callers[1]):
			more = false // below it is what runs every handler
		case !panicked:
			panicked = f.Function == "runtime.gopanic"
		case inside || !strings.HasPrefix(f.Function, "runtime."): // such as runtime.sigpanic
			inside = true
			fmt.Fprintf(&b, "%s\n\t%s:%d\n", f.Function, f.File, f.Line)
		}
		if !more {
			return &PanicError{Value: value, Stack: b.String()}
		}
	}
}

// callers are what the names of those end with who call handlers and recover.
var callers = [...]string{"/consume.(*consumer).call", "/consume.recovered"}
