package consume

import (
	"fmt"
	"runtime"
	"strings"
)

// PanicError is the error of an attempt whose handler panicked.
type PanicError struct {
	Value any
	// Stack begins where the panic happened and ends at the handler.
	Stack string
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v\n\n%s", e.Value, e.Stack) }

// Unwrap returns the panic's value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
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
		case strings.HasSuffix(f.Function, runnerFrame):
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

// runnerFrame ends the name of the method that calls handlers.
const runnerFrame = "consume.(*consumer).call"
