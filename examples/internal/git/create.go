package git

import (
	"bytes"
	"context"
	"fmt"
	"strings"
)

// Commit to be made, in order of the list.
type Commit struct {
	Ref     string // moves to the commit
	From    string // ref of the parent, with ^0 behind it if an earlier call made it; empty for none
	Files   string // names, separated by blanks, that get Content
	Content string
}

// Create makes a bare repository. Thousands of commits take one git process.
func Create(ctx context.Context, path string, commits []Commit) error {
	var stream bytes.Buffer
	for _, c := range commits {
		fmt.Fprintf(&stream, "commit %s\ncommitter demo <demo@localhost> 0 +0000\ndata %d\n%s\n", c.Ref, len(c.Ref), c.Ref)
		if c.From != "" {
			fmt.Fprintf(&stream, "from %s\n", c.From)
		}
		for name := range strings.FieldsSeq(c.Files) {
			fmt.Fprintf(&stream, "M 100644 inline %s\ndata %d\n%s\n", name, len(c.Content), c.Content)
		}
		stream.WriteByte('\n')
	}
	stream.WriteString("done\n")
	if _, _, err := Repository(".").run(ctx, "", "init", "--quiet", "--bare", path); err != nil {
		return err
	}
	if _, _, err := Repository(path).run(ctx, stream.String(), "fast-import", "--quiet", "--done"); err != nil {
		return err
	}
	_, _, err := Repository(path).run(ctx, "", "pack-refs", "--all")
	return err
}
