package engine

// fifo is a queue that gives its memory back. The zero value is ready for use.
type fifo[T any] struct {
	items []T
	head  int
}

func (q *fifo[T]) len() int { return len(q.items) - q.head }

func (q *fifo[T]) push(v T) { q.items = append(q.items, v) }

func (q *fifo[T]) pop() (v T) {
	var zero T
	v, q.items[q.head] = q.items[q.head], zero
	q.head++
	switch {
	case q.head == len(q.items):
		q.items, q.head = q.items[:0], 0
		if cap(q.items) > 1024 {
			q.items = nil
		}
	case q.head > 1024 && q.head > len(q.items)/2:
		q.items = append([]T(nil), q.items[q.head:]...)
		q.head = 0
	}
	return v
}
