// Command wsload is the client of bench/run ws: see package wsload. It reads
// orders from its standard input, each a line of JSON, and writes a line of JSON
// for each. The end of its input ends it.
//
//	wsload
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"

	"millrace/bench/subjects/internal/wsload"
)

// maxOrder is the longest line that is read.
const maxOrder = 1 << 16

func main() {
	runtime.LockOSThread() // the one thread that all connections are on
	if err := run(os.Stdin, os.Stdout); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "wsload:", err)
		os.Exit(1)
	}
}

// run carries out orders until there are no more. A goroutine reads them, so
// that connections are served in between; it ends with them, or with the
// process.
func run(orders io.Reader, answers io.Writer) (err error) {
	client, err := wsload.New()
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
func do(client *wsload.Client, line []byte) any {
	var o wsload.Order
	err := json.Unmarshal(line, &o)
	if err != nil {
		return wsload.Failure{Error: fmt.Sprintf("reading an order: %v", err)}
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
		return wsload.Failure{Error: err.Error()}
	}
	return answer
}
