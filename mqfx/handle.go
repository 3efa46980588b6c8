package mqfx

import (
	"errors"
	"fmt"
	"reflect"

	"go.uber.org/fx"

	"github.com/tenantmq/tenantmq/consume"
)

const (
	handlersTag   = `group:"mqfx.handlers"`
	middlewareTag = `group:"mqfx.middleware"`
)

var (
	handlerType    = reflect.TypeFor[consume.Handler]()
	middlewareType = reflect.TypeFor[consume.Middleware]()
	errorType      = reflect.TypeFor[error]()
)

// Handle adds handlers to the application. Each argument is a constructor that
// takes what it depends on and returns a [consume.Handler] or a type that
// implements it, and maybe an error:
//
//	func NewLandHandler(store *Store, out publish.Publisher) (*LandHandler, error)
//
// A handler that depends on nothing may be given as it is. No two handlers of
// an application may share a topic and group.
func Handle(constructors ...any) fx.Option {
	options := []fx.Option{needsModule}
	for _, c := range constructors {
		options = append(options, handle(c))
	}
	return fx.Options(options...)
}

// Middleware adds middlewares around every handler of the application. Each
// argument is a [consume.Middleware] or a constructor that takes what it depends
// on and returns one, and maybe an error. Their order is that of their
// priorities, whatever the order in which they are listed; no two may share a
// name. The module adds consume.Recover, and tracing.Middleware where it traces.
//
//	mqfx.Middleware(NewQuota, func(l *zap.Logger) consume.Middleware { return consume.Logging(l, time.Second) })
func Middleware(constructors ...any) fx.Option {
	options := []fx.Option{needsModule}
	for _, c := range constructors {
		options = append(options, middleware(c))
	}
	return fx.Options(options...)
}

func middleware(c any) fx.Option {
	tags := fx.ResultTags(middlewareTag)
	if m, ok := c.(consume.Middleware); ok {
		return fx.Supply(fx.Annotate(m, tags))
	}
	if err := checkConstructor(c, func(t reflect.Type) bool { return t == middlewareType }, "must be a consume.Middleware"); err != nil {
		return fx.Error(fmt.Errorf("mqfx.Middleware(%T): %w", c, err))
	}
	return fx.Provide(fx.Annotate(c, tags))
}

func handle(c any) fx.Option {
	as := []fx.Annotation{fx.As(new(consume.Handler)), fx.ResultTags(handlersTag)}
	if _, ok := c.(consume.Handler); ok {
		return fx.Supply(fx.Annotate(c, as...))
	}
	isHandler := func(t reflect.Type) bool { return t.Implements(handlerType) }
	if err := checkConstructor(c, isHandler, fmt.Sprintf("must implement %v: methods Subscription and Handle", handlerType)); err != nil {
		return fx.Error(fmt.Errorf("mqfx.Handle(%T): %w", c, err))
	}
	return fx.Provide(fx.Annotate(c, as...))
}

// checkConstructor wants a function whose first result is of the type wanted.
func checkConstructor(c any, wanted func(reflect.Type) bool, rule string) error {
	t := reflect.TypeOf(c)
	switch {
	case t == nil || t.Kind() != reflect.Func:
		return errors.New("want a constructor or what it would return; what needs fx.Annotate takes a struct with fx.In instead")
	case reflect.ValueOf(c).IsNil():
		return errors.New("the constructor is nil")
	case t.NumOut() == 0 || !wanted(t.Out(0)):
		return errors.New("the constructor's first result " + rule)
	case t.NumOut() > 2 || t.NumOut() == 2 && t.Out(1) != errorType:
		return errors.New("the constructor may return an error beside that and nothing else; give each a constructor of its own")
	}
	return nil
}
