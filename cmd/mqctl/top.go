package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/tenantmq/tenantmq/internal/operator"
	"github.com/tenantmq/tenantmq/tenants"
)

const (
	defaultTopInterval = 3 * time.Second
	minTopInterval     = 100 * time.Millisecond
)

// frame is what top shows at a time.
type frame struct {
	At      time.Time `json:"at"`
	Tenants []topRow  `json:"tenants"` // by lag, then by dead letters, the largest first
}

type topRow struct {
	Tenant      string   `json:"tenant"`
	Lag         count    `json:"lag"`
	ChangePerS  *float64 `json:"change_per_s"`
	OldestMS    int64    `json:"oldest_ms"`
	DeadLetters count    `json:"dead_letters"`
	Groups      int      `json:"groups"`
	Paused      int      `json:"paused"`
	Subscribers int      `json:"subscribers"`
}

func (a *app) top() *cobra.Command {
	var who scope
	var interval time.Duration
	check := func() error {
		if interval < minTopInterval {
			return fmt.Errorf("--interval %v: want %v or more", interval, minTopInterval)
		}
		return who.check()
	}
	c := &cobra.Command{
		Use: "top", Short: "Watch tenants by lag, the largest first",
		Long: "Watch tenants by lag and then by dead letters, the largest first, until q is pressed. Lag is the sum over all topics and groups;\n" +
			"\"change\" is by how much it has grown (+) or shrunk (-) a second since the frame before: what was published\n" +
			"less what was settled. Dead letters are the messages of topics that end in a suffix of the configuration.\n" +
			"Where standard output is no terminal, one frame is printed, of two samples an interval apart.",
		Example: "  mqctl top --all-tenants\n  mqctl top --all-tenants --json",
		RunE: a.lasting(check, func(ctx context.Context, s *session) error {
			if !who.all {
				if err := a.within(ctx, func(ctx context.Context) error { return a.noteAbsent(ctx, s, &who.target) }); err != nil {
					return err
				}
			}
			t := &top{app: a, session: s, who: &who, interval: interval, suffixes: suffixes(s)}
			if a.json || !a.outTerminal || !a.inTerminal {
				return t.once(ctx)
			}
			return t.live(ctx)
		}),
	}
	who.flags(c)
	c.Flags().DurationVar(&interval, "interval", defaultTopInterval, "time between frames")
	return c
}

// suffixes are those by which topics are known to hold dead letters.
func suffixes(s *session) []string {
	list := []string{s.cfg.Subscription.DeadLetter.Suffix}
	for _, t := range s.cfg.Topics {
		list = append(list, t.DeadLetter.Suffix)
	}
	return list
}

// top takes samples.
type top struct {
	*app
	*session
	who      *scope
	interval time.Duration
	suffixes []string
	last     frame
}

// sample looks at all tenants, and compares with the frame before.
func (t *top) sample(ctx context.Context) (frame, error) {
	f := frame{At: t.now().UTC()}
	err := t.within(ctx, func(ctx context.Context) (err error) {
		f.Tenants, err = each(ctx, t.who.ids, t.tenant)
		return err
	})
	if err != nil {
		return frame{}, err
	}
	for i := range f.Tenants {
		f.Tenants[i].ChangePerS = t.change(f, f.Tenants[i])
	}
	slices.SortStableFunc(f.Tenants, func(a, b topRow) int {
		return cmp.Or(cmp.Compare(b.Lag.N, a.Lag.N), cmp.Compare(b.DeadLetters.N, a.DeadLetters.N))
	})
	t.last = f
	return f, nil
}

// change is nil where it is not known: without a frame before, and between
// lower bounds.
func (t *top) change(f frame, now topRow) *float64 {
	i := slices.IndexFunc(t.last.Tenants, func(r topRow) bool { return r.Tenant == now.Tenant })
	if i < 0 || now.Lag.AtLeast || t.last.Tenants[i].Lag.AtLeast {
		return nil
	}
	rate := float64(now.Lag.N-t.last.Tenants[i].Lag.N) / f.At.Sub(t.last.At).Seconds()
	return &rate
}

func (t *top) tenant(ctx context.Context, id tenants.ID) (topRow, error) {
	row := topRow{Tenant: string(id)}
	groups, err := t.Groups(ctx, id, "")
	if err != nil {
		return row, err
	}
	for _, g := range groups {
		row.add(g)
	}
	topics, err := t.Topics(ctx, id)
	for _, topic := range topics {
		if slices.ContainsFunc(t.suffixes, func(suffix string) bool { return strings.HasSuffix(topic.Topic, suffix) }) {
			row.DeadLetters.N += topic.Messages.N
			row.DeadLetters.AtLeast = row.DeadLetters.AtLeast || topic.Messages.AtLeast
		}
	}
	return row, err
}

func (r *topRow) add(g operator.Group) {
	r.Groups++
	r.Subscribers += g.Subscribers
	if g.Paused {
		r.Paused++
	}
	r.Lag.N += g.Lag.Messages
	r.Lag.AtLeast = r.Lag.AtLeast || g.Lag.AtLeast
	r.OldestMS = max(r.OldestMS, g.Lag.Oldest.Milliseconds())
}

// once prints one frame.
func (t *top) once(ctx context.Context) error {
	if _, err := t.sample(ctx); err != nil {
		return err
	}
	select {
	case <-time.After(t.interval):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	f, err := t.sample(ctx)
	if err != nil {
		return err
	}
	return t.emit(f, func() error { return t.draw(t.out, t.width(), f, len(f.Tenants)) })
}

// draw shows the first tenants of a frame.
func (t *top) draw(w io.Writer, width int, f frame, most int) error {
	shown := min(most, len(f.Tenants))
	rows := make([]table.Row, shown)
	for i, r := range f.Tenants[:shown] {
		rows[i] = table.Row{
			quote(r.Tenant), r.Lag, changeCell(r.ChangePerS), oldest(r.Lag.N, time.Duration(r.OldestMS)*time.Millisecond), r.DeadLetters,
			r.Groups, r.Paused, r.Subscribers,
		}
	}
	return renderTable(w, width, table.Row{"tenant", "lag", "change/s", "oldest", "dead letters", "groups", "paused", "subscribers"}, rows)
}

func changeCell(rate *float64) string {
	if rate == nil {
		return "?"
	}
	return fmt.Sprintf("%+.1f", *rate)
}

// ANSI sequences.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // a screen of its own, without the cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
)

// live shows frame after frame until q or an interrupt.
func (t *top) live(ctx context.Context) error {
	in, out := t.in.(*os.File), t.out.(*os.File)
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return fmt.Errorf("read single keys from the terminal: %w", err)
	}
	fmt.Fprint(out, enterScreen)
	defer func() {
		fmt.Fprint(out, leaveScreen)
		_ = term.Restore(int(in.Fd()), before) // nothing is left to try
	}()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // a read of a terminal cannot be interrupted: it ends with the process at the latest
		defer cancel()
		for key := make([]byte, 1); ; {
			const interrupt = 3 // Ctrl-C, which in raw mode is a key
			if n, err := in.Read(key); err != nil || n == 1 && (key[0] == 'q' || key[0] == interrupt) {
				return
			}
		}
	}()

	ticker := time.NewTicker(t.interval)
	defer ticker.Stop()
	for {
		f, err := t.sample(ctx)
		if errors.Is(ctx.Err(), context.Canceled) {
			return nil
		}
		t.paintScreen(out, f, err)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// paintScreen replaces what the screen shows. An error is shown in place of the
// frame: the database may come back.
func (t *top) paintScreen(out *os.File, f frame, err error) {
	width, height, sizeErr := term.GetSize(int(out.Fd()))
	if sizeErr != nil || width == 0 || height == 0 { // unknown
		width, height = 80, 24
	}
	room := max(height-4, 1)
	var screen bytes.Buffer
	fmt.Fprintf(&screen, "mqctl top  %s  every %s  %d of %d tenants  q quits\n\n",
		t.now().Format(time.TimeOnly+" -07:00"), age(t.interval), min(room, len(f.Tenants)), len(t.who.ids))
	if err != nil {
		fmt.Fprintln(&screen, printable(err.Error()))
	} else if err := t.draw(&screen, width, f, room); err != nil {
		fmt.Fprintln(&screen, err)
	}
	var painted strings.Builder
	painted.WriteString(home)
	for line := range strings.Lines(screen.String()) {
		painted.WriteString(text.Trim(strings.TrimSuffix(line, "\n"), width) + clearLine + "\r\n")
	}
	fmt.Fprint(out, painted.String()+clearBelow)
}
