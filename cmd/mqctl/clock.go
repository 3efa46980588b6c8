package main

import (
	"fmt"
	"time"
)

// age shows a duration in two units at most: "850 ms", "12 s", "3 min 5 s",
// "5 h 12 min", "4 d 3 h".
func age(d time.Duration) string {
	const day = 24 * time.Hour
	two := func(big time.Duration, bigUnit string, small time.Duration, smallUnit string) string {
		if rest := d % big / small; rest > 0 {
			return fmt.Sprintf("%d %s %d %s", d/big, bigUnit, rest, smallUnit)
		}
		return fmt.Sprintf("%d %s", d/big, bigUnit)
	}
	switch {
	case d < 0:
		return "-" + age(-d)
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return two(time.Minute, "min", time.Second, "s")
	case d < day:
		return two(time.Hour, "h", time.Minute, "min")
	}
	return two(day, "d", time.Hour, "h")
}

// moment shows a point in time in the local zone and from now, with its date
// unless that is today's. The ages are this machine's; mqctl doctor tells how far
// its clock is from the server's.
func (a *app) moment(t time.Time) string {
	if t.IsZero() || t.UnixMilli() == 0 {
		return "-"
	}
	now := a.now()
	layout := time.DateTime
	if local := t.Local(); local.YearDay() == now.YearDay() && local.Year() == now.Year() {
		layout = time.TimeOnly
	}
	if d := now.Sub(t); d >= 0 {
		return t.Local().Format(layout) + ", " + age(d) + " ago"
	}
	return t.Local().Format(layout) + ", in " + age(t.Sub(now))
}

// oldest shows the age of the oldest message, if there is any.
func oldest(messages int, d time.Duration) string {
	if messages == 0 {
		return "-"
	}
	return age(d)
}
