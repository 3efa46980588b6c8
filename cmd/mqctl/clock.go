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

// zone is the local one as its distance from UTC now, "+01:00". Moments of a
// table are in it, and its header tells it.
func (a *app) zone() string { return a.now().Format("-07:00") }

// moment shows a point in time in the zone of now and from now, with its date
// unless that is today's. The ages are this machine's; mqctl doctor tells how far
// its clock is from the server's.
func (a *app) moment(t time.Time) string { return a.show(t, "") }

// zonedMoment is a moment where no header tells the zone.
func (a *app) zonedMoment(t time.Time) string { return a.show(t, " -07:00") }

func (a *app) show(t time.Time, zone string) string {
	if t.IsZero() || t.UnixMilli() == 0 {
		return "-"
	}
	now := a.now()
	_, offset := now.Zone()
	local := t.In(time.FixedZone("", offset)) // that of t may be another, with daylight saving
	layout := time.DateTime
	if local.YearDay() == now.YearDay() && local.Year() == now.Year() {
		layout = time.TimeOnly
	}
	if d := now.Sub(t); d >= 0 {
		return local.Format(layout+zone) + ", " + age(d) + " ago"
	}
	return local.Format(layout+zone) + ", in " + age(t.Sub(now))
}

// oldest shows the age of the oldest message, if there is any.
func oldest(messages int, d time.Duration) string {
	if messages == 0 {
		return "-"
	}
	return age(d)
}
