package mqfxtest

import "testing"

// Expecting returns app with somebody else to fail.
func Expecting(app *App, t testing.TB) *App {
	other := *app
	other.t = t
	return &other
}
