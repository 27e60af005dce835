package packed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"time"

	"millrace/lab/experiment"
	"millrace/lab/record"
	"millrace/lab/subject"
	"millrace/lab/trial"
)

// The metrics of the tasks.
const (
	firstByte = "first_byte_ns"
	memory    = "rss_bytes"
)

const (
	// starts are how many there are in a slot.
	starts = 5
	// answerTimeout is how long a start, or an answer, may take.
	answerTimeout = 10 * time.Second
	// pause is between two attempts to connect: short beside what is measured.
	pause = 200 * time.Microsecond
	// clients ask at once.
	clients = 8
)

// encodings are what the files are asked for with.
func encodings() []string { return []string{"identity", "gzip", "br"} }

// errAnswer is an answer that is not what was asked for.
var errAnswer = errors.New("no page")

// startOften measures the time from a start to the first byte, some times.
func (m *measurement) startOften(ctx context.Context, slot trial.TaskSlot) (trial.TaskResult, error) {
	var times []float64
	for range starts {
		took, err := m.startOnce(ctx, m.launches[slot.Arm])
		if err != nil {
			return trial.TaskResult{}, err
		}
		times = append(times, float64(took))
	}
	return trial.TaskResult{Values: map[string]float64{firstByte: experiment.Median(times)}, Done: starts}, nil
}

// startOnce starts a server, asks for the page until there is an answer, and ends
// the server. It does not wait for the server by package subject, which looks
// less often.
func (m *measurement) startOnce(ctx context.Context, l experiment.Launch) (took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	address, err := subject.FreeAddress()
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp(m.Env.Work, "start-")
	if err != nil {
		return 0, fmt.Errorf("making a folder for the server: %w", err)
	}
	defer os.RemoveAll(dir)                                                                                       //nolint:errcheck // it is in the folder of the run, which is removed
	cmd := exec.CommandContext(ctx, l.Exe, l.Args(experiment.Place{Site: m.Site, Dir: dir, Address: address})...) //nolint:gosec // our own program
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("starting %s: %w", l.Exe, err)
	}
	err = awaitByte(ctx, address)
	took = time.Since(began)
	cancel()       // kills it
	_ = cmd.Wait() // that it was killed is known
	return took, err
}

// awaitByte asks for the page until its first byte is there.
func awaitByte(ctx context.Context, address string) error {
	for {
		err := askOnce(ctx, address)
		if err == nil {
			return nil
		}
		if experiment.Sleep(ctx, pause) != nil {
			return fmt.Errorf("waiting for the first byte: %w", err)
		}
	}
}

func askOnce(ctx context.Context, address string) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if at, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(at); err != nil {
			return err
		}
	}
	const begin = "HTTP/1.1 200 "
	if _, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", address); err != nil {
		return err
	}
	var got [len(begin)]byte
	if _, err := io.ReadFull(conn, got[:]); err != nil {
		return err
	}
	if string(got[:]) != begin {
		return fmt.Errorf("%w: it begins with %q", errAnswer, got[:])
	}
	return nil
}

// askForAll asks a server that has done nothing before for every page in every
// encoding, and reads what it holds then.
func (m *measurement) askForAll(ctx context.Context, slot trial.TaskSlot) (result trial.TaskResult, err error) {
	err = m.Alone(ctx, slot.Arm, func(in *trial.Instance, target *record.Target) error {
		files, accepted := pageFiles(), encodings()
		client := &http.Client{
			Timeout:   answerTimeout,
			Transport: &http.Transport{MaxIdleConnsPerHost: clients, DisableCompression: true},
		}
		defer client.CloseIdleConnections()
		err := experiment.Each(len(files)*len(accepted), clients, func(i int) error {
			return ask(ctx, client, in.URL[""]+files[i/len(accepted)].Name, accepted[i%len(accepted)])
		})
		if err != nil {
			return err
		}
		held, err := target.Read()
		// Of this server, not of the one that the slot is about.
		result = trial.TaskResult{Values: map[string]float64{memory: float64(held.RSS)}, Done: uint64(len(files) * len(accepted))}
		return err
	})
	return result, err
}

func ask(ctx context.Context, client *http.Client, url, encoding string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept-Encoding", encoding)
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	n, err := io.Copy(io.Discard, res.Body)
	if err == nil && (res.StatusCode != http.StatusOK || n == 0) {
		err = fmt.Errorf("%w at %s: status %d, %d bytes", errAnswer, url, res.StatusCode, n)
	}
	return err
}
