package main

import "fmt"

// goal is what a figure of a result should be at least, or at most.
type goal struct {
	result, figure string
	of             func(result) (float64, bool)
	want           float64
	atMost         bool
}

// loss is a figure of snapshot.
const loss = "loss, %"

var goals = []goal{
	{result: "publish-single", figure: "times watermill-sql", of: ratio(watermill), want: 4},
	{result: "publish-batch", figure: "times the floor", of: ratio(floor), want: 0.7},
	{result: "publish-batch", figure: "times River", of: ratio(river), want: 1},
	{result: "settle", figure: "times the floor", of: ratio(floor), want: 0.5},
	{result: "settle", figure: "times River", of: ratio(river), want: 1.1},
	{result: "settle", figure: "times watermill-sql", of: ratio(watermill), want: 4},
	{result: "many-keys", figure: "msg/s", of: func(r result) (float64, bool) { return r.Ours, true }, want: 5000},
	{result: "idle-1000", figure: "statements/s", of: func(r result) (float64, bool) { return r.Ours, true }, want: 20, atMost: true},
	{result: "noisy-tenant", figure: "p99 to alone", of: func(r result) (float64, bool) { return *r.P99Ratio, true }, want: 3, atMost: true},
	{result: "snapshot", figure: "% of the rate lost", of: func(r result) (float64, bool) { return r.More[loss], true }, want: 20, atMost: true},
}

func ratio(system string) func(result) (float64, bool) {
	return func(r result) (float64, bool) {
		v, ok := r.Ratios[system]
		return v, ok
	}
}

// judge says in words whether r reaches the goal.
func (g goal) judge(r result) string {
	is, ok := g.of(r)
	sign := ">="
	if g.atMost {
		sign = "<="
	}
	switch {
	case !ok:
		return fmt.Sprintf("n/a %s: want %s %v", g.figure, sign, g.want)
	case g.atMost && is <= g.want, !g.atMost && is >= g.want:
		return fmt.Sprintf("%.2f %s: met, want %s %v", is, g.figure, sign, g.want)
	default:
		return fmt.Sprintf("%.2f %s: NOT MET, want %s %v", is, g.figure, sign, g.want)
	}
}

// verdicts are those of the goals for r.
func verdicts(r result) []string {
	var all []string
	for _, g := range goals {
		if g.result == r.Name {
			all = append(all, g.judge(r))
		}
	}
	return all
}
