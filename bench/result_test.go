package main

import (
	"strings"
	"testing"
	"time"
)

func TestResultsAreOfTheMedianAndDividedByTheOthers(t *testing.T) {
	rounds := func(values ...float64) (all []sample) {
		for _, v := range values {
			all = append(all, sample{n: 10, value: v, usage: usage{took: time.Second, counters: counters{statements: v}}})
		}
		return all
	}
	r := newResult("settle", "msg/s", map[string]cost{
		"ours": summary(rounds(30, 10, 20), true, nil), floor: summary(rounds(40), true, nil), river: summary(rounds(1, 9), false, nil),
	}, nil)
	us := r.Systems["ours"]
	if r.Ours != 20 || us.Min != 10 || us.Max != 30 || *r.StatementsPerMessage != 2 {
		t.Errorf("ours is %v of %v to %v with %v statements, want 20 of 10 to 30 with 2", r.Ours, us.Min, us.Max, *r.StatementsPerMessage)
	}
	if *r.Floor != 40 || r.Ratios[floor] != 0.5 {
		t.Errorf("the floor is %v, ratio %v; want 40, 0.5", *r.Floor, r.Ratios[floor])
	}
	if r.Peers[river] != 5 || r.Ratios[river] != 4 || len(r.Peers) != 1 || r.Systems[river].Statements != nil {
		t.Errorf("River is %v, ratio %v, costs %+v; want 5, 4 and no statements", r.Peers, r.Ratios[river], r.Systems[river])
	}
}

func TestGoalsSayWhetherTheyAreMet(t *testing.T) {
	least := goal{figure: "times", of: ratio(floor), want: 0.5}
	most := goal{figure: "times", of: ratio(floor), want: 0.5, atMost: true}
	at := func(v float64) result { return result{Ratios: map[string]float64{floor: v}} }
	for _, c := range []struct {
		goal   goal
		result result
		want   string
	}{
		{least, at(0.5), ": met"}, {least, at(0.4), "NOT MET"}, {most, at(0.5), ": met"}, {most, at(0.6), "NOT MET"}, {least, result{}, "n/a"},
	} {
		if got := c.goal.judge(c.result); !strings.Contains(got, c.want) {
			t.Errorf("%+v: %q, want %q in it", c.result.Ratios, got, c.want)
		}
	}
}

func TestCheckNamesWhatHasGrownOrIsNotThere(t *testing.T) {
	one := func(probe, figure string, value, limit float64) map[string]map[string]committed {
		return map[string]map[string]committed{probe: {figure: {value, limit}}}
	}
	was := one("settle", statements, 1, 1.3)
	for _, c := range []struct {
		name string
		now  map[string]map[string]committed
		want []string // empty: no error
	}{
		{"within its limit", one("settle", statements, 1.3, 9), nil},
		{"grown", one("settle", statements, 1.4, 9), []string{"settle, statements a message: was 1.00, is 1.40", "UPDATE=1"}},
		{"another figure", one("settle", rowsRead, 1, 9), []string{"settle, rows read a message: is 1.00 and was not", "settle, statements a message: is in the file"}},
	} {
		err := compareCommitted(was, c.now)
		if (err != nil) != (c.want != nil) {
			t.Errorf("%s: %v", c.name, err)
		}
		for _, w := range c.want {
			if err != nil && !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q is not in %v", c.name, w, err)
			}
		}
	}
}
