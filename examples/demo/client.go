package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// answer of a service.
type answer struct {
	status int
	body   []byte
}

func get(ctx context.Context, url string) (answer, error) {
	return call(ctx, http.MethodGet, url, nil)
}

func call(ctx context.Context, method, url string, body []byte) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, text}, err
}

// client asks any of several processes of one service, another one whenever one
// does not answer.
type client struct {
	addresses []string
	turn      atomic.Uint64
}

// do repeats a request until some process answers it with less than 500, or
// none has for stallTimeout.
func (c *client) do(ctx context.Context, method, path string, body []byte) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, stallTimeout)
	defer cancel()
	for {
		address := c.addresses[c.turn.Add(1)%uint64(len(c.addresses))]
		a, err := call(ctx, method, "http://"+address+path, body)
		if err == nil && a.status < 500 {
			return a, nil
		}
		if pauseErr := pause(ctx, 100*time.Millisecond); pauseErr != nil {
			if err == nil {
				err = fmt.Errorf("%d %s", a.status, a.body)
			}
			return answer{}, fmt.Errorf("%s %s: %w, after: %w", method, path, pauseErr, err)
		}
	}
}

// read decodes what a GET answers.
func (c *client) read(ctx context.Context, path string, into any) error {
	a, err := c.do(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	if a.status != http.StatusOK {
		return fmt.Errorf("GET %s: %d %s", path, a.status, a.body)
	}
	return json.Unmarshal(a.body, into)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
