package consume

import (
	"context"
	"time"
)

// watch waits for a handler whose context has ended, and gives it up if it does
// not return. A handler that returns before costs no goroutine.
type watch struct {
	returned chan struct{} // the handler has
	over     chan struct{} // the waiting
	stop     func() bool
	deaf     bool // to be read after end: the handler was given up
}

// newWatch calls giveUp, once, when ctx ended patience ago.
func newWatch(ctx context.Context, patience time.Duration, giveUp func()) *watch {
	w := &watch{returned: make(chan struct{}), over: make(chan struct{})}
	w.stop = context.AfterFunc(ctx, func() {
		defer close(w.over)
		select {
		case <-w.returned:
		case <-time.After(patience):
			w.deaf = true
			giveUp()
		}
	})
	return w
}

// end says that the handler has returned. giveUp is not running any more then,
// and will not. It is to be called before the handler's context is cancelled.
func (w *watch) end() {
	close(w.returned)
	if !w.stop() {
		<-w.over
	}
}
