package mqfx

import (
	"errors"
	"fmt"
	"reflect"

	"go.uber.org/fx"

	"github.com/tenantmq/tenantmq/consume"
)

const handlersTag = `group:"mqfx.handlers"`

var (
	handlerType = reflect.TypeFor[consume.Handler]()
	errorType   = reflect.TypeFor[error]()
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
	options := make([]fx.Option, len(constructors))
	for i, c := range constructors {
		options[i] = handle(c)
	}
	return fx.Options(options...)
}

func handle(c any) fx.Option {
	as := []fx.Annotation{fx.As(new(consume.Handler)), fx.ResultTags(handlersTag)}
	if _, ok := c.(consume.Handler); ok {
		return fx.Supply(fx.Annotate(c, as...))
	}
	if err := checkConstructor(c); err != nil {
		return fx.Error(fmt.Errorf("mqfx.Handle(%T): %w", c, err))
	}
	return fx.Provide(fx.Annotate(c, as...))
}

func checkConstructor(c any) error {
	t := reflect.TypeOf(c)
	switch {
	case t == nil || t.Kind() != reflect.Func:
		return errors.New("want a constructor or a handler; what needs fx.Annotate takes a struct with fx.In instead")
	case reflect.ValueOf(c).IsNil():
		return errors.New("the constructor is nil")
	case t.NumOut() == 0 || !t.Out(0).Implements(handlerType):
		return fmt.Errorf("the constructor's first result must implement %v: methods Subscription and Handle", handlerType)
	case t.NumOut() > 2 || t.NumOut() == 2 && t.Out(1) != errorType:
		return errors.New("the constructor may return an error beside the handler and nothing else; give each handler its own")
	}
	return nil
}
