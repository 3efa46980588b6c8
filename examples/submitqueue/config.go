package main

import "cmp"

// Config is the section submitqueue of the configuration.
type Config struct {
	// Address of the HTTP server, host:port.
	Address string `yaml:"address"`
	// Check is run by sh for each change, with QUEUE and CHANGE in its
	// environment. Exit code 0 lets the change be merged.
	Check string `yaml:"check"`
	// Queues have a check of their own.
	Queues map[string]QueueConfig `yaml:"queues"`
}

// QueueConfig is what differs for one queue.
type QueueConfig struct {
	Check string `yaml:"check"`
}

// CheckOf returns the check command of a queue.
func (c Config) CheckOf(queue string) string { return cmp.Or(c.Queues[queue].Check, c.Check) }
