package wsload

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxOrder is the longest line that is read.
const maxOrder = 1 << 16

// Serve carries out orders, each a line of JSON, until there are no more. A goroutine reads them, so
// that connections are served in between; it ends with them, or with the
// process.
func Serve(orders io.Reader, answers io.Writer) (err error) {
	client, err := New()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Free()) }()
	lines := make(chan []byte, 1)
	go func() {
		defer client.Wake()
		defer close(lines)
		s := bufio.NewScanner(orders)
		for s.Buffer(nil, maxOrder); s.Scan(); client.Wake() {
			lines <- append([]byte(nil), s.Bytes()...)
		}
	}()
	out := json.NewEncoder(answers)
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				return nil
			}
			if err := out.Encode(do(client, line)); err != nil {
				return fmt.Errorf("answering: %w", err)
			}
		default:
			if err := client.Turn(-1); err != nil {
				return err
			}
		}
	}
}

// do carries out one order and returns its answer.
func do(client *Client, line []byte) any {
	var o Order
	err := json.Unmarshal(line, &o)
	if err != nil {
		return Failure{Error: fmt.Sprintf("reading an order: %v", err)}
	}
	var answer any
	switch {
	case o.Open != nil:
		answer, err = client.Open(*o.Open)
	case o.Echo != nil:
		answer, err = client.Echo(*o.Echo)
	case o.Broadcast != nil:
		answer, err = client.Broadcast(*o.Broadcast)
	case o.State:
		answer = client.State()
	case o.Close:
		answer = client.Close()
	default:
		err = errors.New("an order without anything to do")
	}
	if err != nil {
		return Failure{Error: err.Error()}
	}
	return answer
}
