package main

import (
	"errors"
	"image/color"
	"os"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// chart is one picture: bars of what compares.
type chart struct {
	name, title, unit string
	bars              []bar
}

// bar is a median with the lowest and the highest round.
type bar struct {
	label         string
	min, mid, max float64
	ours          bool
}

// charts makes one of each result that has other systems in it, and one of each
// scenario whose results are of the queue alone.
func charts(all []result) []chart {
	var cs []chart
	alone := make(map[string]int) // by name, the chart
	for _, r := range all {
		if len(r.Systems) > 1 {
			c := chart{name: r.Name, title: r.Name + ": " + r.scenario.what, unit: r.Unit}
			for _, s := range r.inOrder() {
				c.bars = append(c.bars, newBar(s, r.Systems[s], s == "ours"))
			}
			cs = append(cs, c)
			continue
		}
		name := r.scenario.name
		if r.scenario.rivals {
			name = r.Name // the other name is the comparison's
		}
		i, ok := alone[name]
		if !ok {
			i = len(cs)
			alone[name] = i
			cs = append(cs, chart{name: name, title: name + ": " + r.scenario.what, unit: r.Unit})
		}
		cs[i].bars = append(cs[i].bars, newBar(r.Name, r.Systems["ours"], true))
	}
	return cs
}

func newBar(label string, c cost, ours bool) bar { return bar{label, c.Min, c.Median, c.Max, ours} }

// plotAll draws the charts into a directory.
func plotAll(dir string, m machine, all []result) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	plot.DefaultFont.Variant = "Sans"
	for _, c := range charts(all) {
		if err := c.draw(filepath.Join(dir, c.name+".svg"), m); err != nil {
			return err
		}
	}
	return nil
}

var (
	ourColor   = color.RGBA{R: 0x1b, G: 0x6c, B: 0xa8, A: 0xff}
	theirColor = color.RGBA{R: 0xb8, G: 0xbf, B: 0xc6, A: 0xff}
)

func (c chart) draw(file string, m machine) error {
	p := plot.New()
	p.Title.Text = c.title
	p.Title.TextStyle.Font.Size = vg.Points(11)
	p.Y.Label.Text = c.unit
	p.Y.Min = 0
	p.Y.Tick.Marker = ticks{}
	var names []string
	spans := whiskers{}
	for i, b := range c.bars {
		names = append(names, b.label)
		column, err := plotter.NewBarChart(plotter.Values{b.mid}, vg.Points(46))
		if err != nil {
			return err
		}
		column.XMin = float64(i)
		column.LineStyle.Width = 0
		column.Color = theirColor
		if b.ours {
			column.Color = ourColor
		}
		p.Add(column)
		spans.XYs = append(spans.XYs, plotter.XY{X: float64(i), Y: b.mid})
		spans.YErrors = append(spans.YErrors, struct{ Low, High float64 }{b.mid - b.min, b.max - b.mid})
	}
	bars, err := plotter.NewYErrorBars(spans)
	if err != nil {
		return err
	}
	labels, err := plotter.NewLabels(values(c.bars))
	if err != nil {
		return err
	}
	for i := range labels.TextStyle {
		labels.TextStyle[i].Font = p.X.Tick.Label.Font
		labels.TextStyle[i].Font.Size = vg.Points(9)
	}
	labels.Offset = vg.Point{X: vg.Points(5), Y: vg.Points(3)} // beside the whisker
	p.Add(bars, labels)
	p.NominalX(names...)
	p.X.Min, p.X.Max = -0.6, float64(len(c.bars))-0.2
	p.Y.Max *= 1.08
	return save(p, file, m)
}

// save draws the plot above the lines that describe the machine.
func save(p *plot.Plot, file string, m machine) (err error) {
	const width, height, foot, line = 20 * vg.Centimeter, 11 * vg.Centimeter, 1.95 * vg.Centimeter, 10
	w, err := draw.NewFormattedCanvas(width, height, strings.TrimPrefix(filepath.Ext(file), "."))
	if err != nil {
		return err
	}
	c := draw.New(w)
	c.SetColor(color.White)
	c.Fill(c.Path())
	p.Draw(draw.Crop(c, vg.Points(4), -vg.Points(8), foot, -vg.Points(4)))
	small := p.Title.TextStyle
	small.Font.Size = vg.Points(8)
	small.XAlign = draw.XLeft
	for i, text := range append(m.lines(), "the median of the rounds; the lines reach from the lowest to the highest") {
		c.FillText(small, vg.Point{X: vg.Points(8), Y: foot - vg.Points(float64(i+1)*line)}, text)
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = w.WriteTo(f)
	return err
}

// whiskers go from the lowest round to the highest.
type whiskers struct {
	plotter.XYs
	plotter.YErrors
}

// values writes each median at its bar.
func values(bars []bar) plotter.XYLabels {
	var l plotter.XYLabels
	for i, b := range bars {
		l.XYs = append(l.XYs, plotter.XY{X: float64(i), Y: b.mid})
		l.Labels = append(l.Labels, number(&b.mid))
	}
	return l
}

// ticks are the usual ones with their numbers as in the tables.
type ticks struct{}

func (ticks) Ticks(low, high float64) []plot.Tick {
	all := plot.DefaultTicks{}.Ticks(low, high)
	for i, t := range all {
		if t.Label != "" {
			all[i].Label = number(&t.Value)
		}
	}
	return all
}
