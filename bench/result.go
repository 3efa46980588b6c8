package main

import (
	"encoding/json"
	"os"
	"slices"
	"time"
)

// result is one line of the report. What is not known, or makes no sense for
// the scenario, is null.
type result struct {
	scenario scenario

	Name string `json:"name"`
	Unit string `json:"unit"`
	// Ours, Floor and Peers are medians over the rounds.
	Ours  float64            `json:"ours"`
	Floor *float64           `json:"floor"`
	Peers map[string]float64 `json:"peers"`
	// Ratios are ours divided by theirs.
	Ratios map[string]float64 `json:"ratios"`

	StatementsPerMessage *float64 `json:"statements_per_message"`
	P50                  *float64 `json:"p50_ms"`
	P99                  *float64 `json:"p99_ms"`
	P99Ratio             *float64 `json:"p99_ratio,omitempty"` // beside a noisy tenant, to alone

	// More are figures of this scenario only, by name with their unit.
	More map[string]float64 `json:"more,omitempty"`
	// Systems are the costs of each, ours included: a message, or a second.
	Systems  map[string]cost `json:"systems"`
	CostsPer string          `json:"costs_per"`
	// Missing says why a system is not there.
	Missing map[string]string `json:"missing,omitempty"`
}

// cost is the median over the rounds of what a system took, a message or a
// second where nothing else is said.
type cost struct {
	Median float64 `json:"median"` // in the result's unit, like the next two
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`

	Statements *float64 `json:"statements"` // by the MySQL server's counters; null for other databases
	Commits    *float64 `json:"commits"`
	RowsRead   *float64 `json:"rows_read"`
	Bytes      *float64 `json:"bytes"` // to and from the server

	ClientCPU    float64  `json:"client_cpu_us"`
	ServerCPU    *float64 `json:"server_cpu_us"`
	ClientMemory float64  `json:"client_peak_mb"`
	ServerMemory *float64 `json:"server_peak_mb"`
	Allocations  float64  `json:"allocations"`
	Goroutines   float64  `json:"goroutines"` // the peak, not a message

	P50   *float64 `json:"p50_ms"`
	P99   *float64 `json:"p99_ms"`
	MaxMS *float64 `json:"max_ms"`
}

// sample is one round of one system.
type sample struct {
	n     float64 // messages, or what else the costs are divided by
	value float64 // in the result's unit
	usage usage
}

// rate is the sample of n messages in a second.
func rate(n int, u usage) sample {
	return sample{n: float64(n), value: float64(n) / u.took.Seconds(), usage: u}
}

// summary makes a cost of samples. onServer says that the system works on the
// server whose counters are read. calls may be nil.
func summary(samples []sample, onServer bool, calls *latencies) cost {
	each := func(f func(sample) float64) (lowest, median, highest float64) {
		values := make([]float64, len(samples))
		for i, s := range samples {
			values[i] = f(s)
		}
		return spread(values)
	}
	middle := func(f func(sample) float64) float64 { _, m, _ := each(f); return m }
	per := func(f func(usage) float64) float64 {
		return middle(func(s sample) float64 { return f(s.usage) / s.n })
	}
	var c cost
	c.Min, c.Median, c.Max = each(func(s sample) float64 { return s.value })
	if onServer {
		c.Statements = new(per(func(u usage) float64 { return u.statements }))
		c.Commits = new(per(func(u usage) float64 { return u.commits }))
		c.RowsRead = new(per(func(u usage) float64 { return u.rowsRead }))
		c.Bytes = new(per(func(u usage) float64 { return u.bytes }))
		if samples[0].usage.serverKnown {
			c.ServerCPU = new(per(func(u usage) float64 { return micros(u.serverCPU) }))
			c.ServerMemory = new(middle(func(s sample) float64 { return s.usage.serverMemory }))
		}
	}
	c.ClientCPU = per(func(u usage) float64 { return micros(u.clientCPU) })
	c.ClientMemory = middle(func(s sample) float64 { return s.usage.clientMemory })
	c.Allocations = per(func(u usage) float64 { return float64(u.mallocs) })
	c.Goroutines = middle(func(s sample) float64 { return float64(s.usage.goroutines) })
	if calls != nil {
		c.P50, c.P99, c.MaxMS = calls.ms(50), calls.ms(99), calls.ms(100)
	}
	return c
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// spread returns the lowest, middle and highest of values, which it sorts.
func spread(values []float64) (lowest, median, highest float64) {
	slices.Sort(values)
	n := len(values)
	return values[0], (values[(n-1)/2] + values[n/2]) / 2, values[n-1]
}

const floor = "floor"

// newResult puts the systems of a result in their places.
func newResult(name, unit string, systems map[string]cost, missing map[string]string) result {
	us := systems["ours"]
	r := result{
		Name: name, Unit: unit, Ours: us.Median, StatementsPerMessage: us.Statements, P50: us.P50, P99: us.P99,
		Peers: map[string]float64{}, Ratios: map[string]float64{}, Systems: systems, CostsPer: "message", Missing: missing,
	}
	for system, c := range systems {
		switch system {
		case "ours":
			continue
		case floor:
			r.Floor = new(c.Median)
		default:
			r.Peers[system] = c.Median
		}
		r.Ratios[system] = us.Median / c.Median
	}
	return r
}

// ofOurs are the systems of a result of the queue alone.
func ofOurs(samples []sample, calls *latencies) map[string]cost {
	return map[string]cost{"ours": summary(samples, true, calls)}
}

// perSecond says that the samples are of seconds, not of messages.
func (r result) perSecond() result {
	r.CostsPer, r.StatementsPerMessage = "second", nil
	return r
}

func writeResults(file string, all []result) error {
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}
