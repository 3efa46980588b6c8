package main

import (
	"cmp"
	"strings"
)

// Config is the section stovepipe of the configuration. {queue} stands for the
// name of the queue.
type Config struct {
	// Address of the HTTP server, host:port.
	Address string `yaml:"address"`
	Source  `yaml:",inline"`
	// Queues override single values of Source.
	Queues map[string]Source `yaml:"queues"`
}

// Source says where a queue's head is and how it is validated.
type Source struct {
	Repository string `yaml:"repository"` // path, bare or not
	Target     string `yaml:"target"`     // ref whose head is validated
	// Command is run by sh with QUEUE, COMMIT and REPOSITORY in its
	// environment. Exit code 0 means green.
	Command string `yaml:"command"`
}

// SourceOf returns the source of a queue.
func (c Config) SourceOf(queue string) Source {
	own := c.Queues[queue]
	names := strings.NewReplacer("{queue}", queue)
	return Source{
		Repository: names.Replace(cmp.Or(own.Repository, c.Repository)),
		Target:     names.Replace(cmp.Or(own.Target, c.Target)),
		Command:    cmp.Or(own.Command, c.Command),
	}
}
