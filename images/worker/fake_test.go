package worker

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"millrace/images/codec"
	"millrace/images/convert"
	"millrace/images/header"
)

// TestMain makes the test binary a worker when it is started as one: its first
// argument is childArg, its second what kind of worker it is.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == childArg {
		if err := child(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const childArg = "images-worker-of-a-test"

// command starts a worker of some kind.
func command(t testing.TB, kind string) []string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return []string{exe, childArg, kind}
}

func child(kind string) error {
	switch kind {
	case "real":
		return Main(os.Stdin, os.Stdout)
	case "fake":
		return serve(os.Stdin, os.Stdout, openFake)
	case "parent": // a server that dies without a word
		return parent()
	case "exits":
		return errors.New("no such verb: images-worker")
	case "silent":
		hang()
	case "garbage":
		fmt.Println("Usage: something else entirely, with more than sixteen bytes")
		hang()
	case "refuses":
		return serve(os.Stdin, os.Stdout, func(context.Context, hello) (converter, *welcome, error) {
			return nil, nil, fmt.Errorf("no codec: %w", codec.ErrUnsupported)
		})
	}
	return badAnswer(kind)
}

// badAnswer greets well and then answers a job in a way that is none.
func badAnswer(kind string) error {
	var h hello
	if _, err := readFrame(os.Stdin, &h, 0); err != nil {
		return err
	}
	if err := writeFrame(os.Stdout, welcome{}, 0); err != nil {
		return err
	}
	var j job
	n, err := readFrame(os.Stdin, &j, maxSource)
	if err != nil {
		return err
	}
	if err := writeFrame(os.Stdout, accepted{}, 0); err != nil {
		return err
	}
	if _, err := io.CopyN(io.Discard, os.Stdin, n); err != nil {
		return err
	}
	frame := append([]byte(magic), "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"...)
	switch kind {
	case "long header":
		binary.BigEndian.PutUint32(frame[4:], 1<<31)
	case "long body":
		binary.BigEndian.PutUint64(frame[8:], 1<<62)
	case "claimed body": // allowed, but never comes
		var b bytes.Buffer
		writeFrame(&b, answer{Result: &convert.Result{}}, maxResult)
		os.Stdout.Write(b.Bytes())
		return nil
	case "cut prefix":
		os.Stdout.Write(frame[:7])
		return nil
	case "cut header":
		binary.BigEndian.PutUint32(frame[4:], 100)
		os.Stdout.Write(append(frame, "{}"...))
		return nil
	case "no json":
		binary.BigEndian.PutUint32(frame[4:], 4)
		frame = append(frame, "nope"...)
	case "empty answer":
		binary.BigEndian.PutUint32(frame[4:], 2)
		frame = append(frame, "{}"...)
	case "floods": // answers before it has listened, and does not stop
		for {
			if _, err := os.Stdout.WriteString(strings.Repeat("x", 1<<16)); err != nil {
				return err
			}
		}
	default:
		return fmt.Errorf("a test asks for a worker %q", kind)
	}
	os.Stdout.Write(frame)
	hang()
	panic("unreachable")
}

// fake does what the source tells it to.
type fake struct{ hello hello }

func openFake(_ context.Context, h hello) (converter, *welcome, error) {
	if h.Level == "none" {
		return nil, nil, errors.New("there is no such level")
	}
	return fake{h}, &welcome{Abilities: Abilities{Level: "fake", Formats: map[codec.Format]EncoderInfo{codec.WebP: {"fake", "a test"}}}}, nil
}

func (f fake) convert(_ context.Context, source []byte, s convert.Spec) (*convert.Result, error) {
	word, arg, _ := strings.Cut(string(source), " ")
	switch word {
	case "embedded":
		r := result("x")
		r.Level = "embedded"
		return r, nil
	case "env":
		return result(strings.Join(os.Environ(), "\n")), nil
	case "known":
		return result(fmt.Sprint(f.hello.Known != nil)), nil
	case "fail":
		return nil, fmt.Errorf("as was asked: %w: %w", convert.ErrNoGain, header.ErrBroken)
	case "exit":
		os.Stderr.WriteString("one\ntwo\nthree\nfour\n")
		os.Exit(3)
	case "panic":
		done := make(chan bool)
		go func() { defer close(done); panic("a decoder that went wrong") }()
		<-done
	case "hang":
		os.WriteFile(arg, []byte(strconv.Itoa(os.Getpid())), 0o600)
		hang()
	case "spawn": // a command that encodes, and takes its time
		cmd := exec.Command("sleep", "1000")
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		os.WriteFile(arg, []byte(strconv.Itoa(cmd.Process.Pid)), 0o600)
		cmd.Wait()
	case "script": // a command that is a script, in a group of its own, as package codec starts it
		cmd := exec.Command("sh", "-c", "sleep 1000 & printf %s $! >"+arg+".new; mv "+arg+".new "+arg+"; wait")
		ownGroup(cmd)
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		hang()
	case "hog":
		var all [][]byte
		for range 64 {
			all = append(all, bytes.Repeat([]byte{1}, 16<<20))
		}
		time.Sleep(time.Minute) // killed by now
		return result(strconv.Itoa(len(all))), nil
	case "much": // and lets go of it
		return result(strconv.Itoa(len(bytes.Repeat([]byte{1}, 300<<20)))), nil
	case "long":
		r := result("x")
		r.Source.Copyright = strings.Repeat("©", 1<<20)
		return r, nil
	}
	return result(fmt.Sprintf("%s q%d", bytes.ToUpper(source), s.Quality)), nil
}

func result(text string) *convert.Result {
	return &convert.Result{Data: []byte(text), Width: 3, Height: 4, Level: "fake", Source: header.Info{Width: 5, ICC: []byte("x")}}
}

// parent is a server with one conversion that hangs. It says who converts it
// in the file that the test named, and then waits to be killed.
func parent() error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	p, err := New(context.Background(), Options{Command: []string{exe, childArg, "fake"}})
	if err != nil {
		return err
	}
	_, err = p.Convert(context.Background(), text("hang "+os.Args[3]), convert.Spec{}, false)
	return err
}

// text is a source.
func text(s string) Source { return Source{Reader: strings.NewReader(s), Size: int64(len(s))} }

// hang does nothing until the process is killed. An empty select would end a
// program in which nothing else runs as a deadlock.
func hang() {
	for {
		time.Sleep(time.Hour)
	}
}
