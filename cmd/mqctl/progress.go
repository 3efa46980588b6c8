package main

import "fmt"

// progress is a line on the terminal that changes; without one nothing is shown.
type progress struct {
	app   *app
	shown bool
}

func (a *app) progress() *progress { return &progress{app: a} }

func (p *progress) show(format string, args ...any) {
	if p.app.errTerminal && !p.app.json {
		fmt.Fprintf(p.app.err, "\r"+format+"\x1b[K", args...)
		p.shown = true
	}
}

// end leaves the last state standing.
func (p *progress) end() {
	if p.shown {
		fmt.Fprintln(p.app.err)
	}
}
