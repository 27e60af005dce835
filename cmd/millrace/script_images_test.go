package main

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/color/palette"
	"image/gif"
	"image/jpeg"
	"image/png"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"millrace/images/params"
)

// settled is how old the files of image are: what changed this moment is not
// converted yet, since it may still be written.
const settled = time.Minute

// makePicture is `picture NAME WIDTH HEIGHT KIND`: see the scripts' README.
func makePicture(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 {
		ts.Fatalf("usage: picture NAME WIDTH HEIGHT photo|drawing|other|animation|truncated")
	}
	width, err := strconv.Atoi(args[1])
	ts.Check(err)
	height, err := strconv.Atoi(args[2])
	ts.Check(err)
	name, kind := ts.MkAbs(args[0]), args[3]
	file, err := encodePicture(filepath.Ext(name), width, height, kind)
	ts.Check(err)
	if kind == "truncated" {
		file = file[:len(file)/2]
	}
	ts.Check(os.MkdirAll(filepath.Dir(name), 0o755))
	ts.Check(os.WriteFile(name+".new", file, 0o644))
	then := time.Now().Add(-settled)
	ts.Check(os.Chtimes(name+".new", then, then))
	ts.Check(os.Rename(name+".new", name))
}

func encodePicture(ext string, width, height int, kind string) ([]byte, error) {
	var b bytes.Buffer
	switch {
	case kind == "animation":
		g := &gif.GIF{}
		for n := range 4 {
			frame := image.NewPaletted(image.Rect(0, 0, width, height), palette.WebSafe)
			for i := range frame.Pix {
				frame.Pix[i] = uint8((i/width + i%width + 9*n) / 4 % len(palette.WebSafe))
			}
			g.Image, g.Delay = append(g.Image, frame), append(g.Delay, 10)
		}
		err := gif.EncodeAll(&b, g)
		return b.Bytes(), err
	case ext == ".png":
		err := png.Encode(&b, paint(width, height, kind))
		return b.Bytes(), err
	}
	err := jpeg.Encode(&b, paint(width, height, kind), &jpeg.Options{Quality: 92})
	return b.Bytes(), err
}

// paint makes hills with some grain, or a drawing of flat colours; other is
// another photo.
func paint(width, height int, kind string) image.Image {
	m := image.NewNRGBA(image.Rect(0, 0, width, height))
	phase, grain := 0.0, rand.New(rand.NewPCG(1, 2))
	if kind == "other" {
		phase = 2
	}
	for y := range height {
		for x := range width {
			c := color.NRGBA{R: 20, G: 60, B: 120, A: 255}
			if kind != "drawing" {
				v := 110 + 80*math.Sin(phase+float64(x)/97)*math.Cos(float64(y)/61) + 8*grain.Float64()
				c = color.NRGBA{R: uint8(v), G: uint8(v * 0.8), B: uint8(200 - v/2), A: 255}
			} else if (x/40+y/40)%2 == 0 {
				c = color.NRGBA{R: 240, G: 200, B: 30, A: 255}
			}
			m.SetNRGBA(x, y, c)
		}
	}
	return m
}

// capture is `keep VARIABLE REGEXP`: what the regular expression's first group
// matches in the last standard output.
func capture(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: keep VARIABLE REGEXP")
	}
	re, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	found := re.FindStringSubmatch(ts.ReadFile("stdout"))
	if len(found) < 2 {
		ts.Fatalf("no match for %s", args[1])
	}
	ts.Setenv(args[0], found[1])
}

// sign is `sign VARIABLE SECRET TARGET`: the target, signed.
func sign(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: sign VARIABLE SECRET TARGET")
	}
	ts.Setenv(args[0], params.Sign(args[1], args[2]))
}

// startAhead is `ahead NAME ARG...`: `millrace images ARG...`, until it is
// about to convert.
func startAhead(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: ahead NAME ARG...")
	}
	s := startProgram(ts, args[0], append([]string{"images"}, args[1:]...))
	_, err := s.err.take(converting, s.done)
	ts.Check(err)
}

var converting = regexp.MustCompile("converting the images of .*\n")

// killWorkers is `killworkers NAME`: it waits until the server has a process
// that converts, and kills all there are.
func killWorkers(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: killworkers NAME")
	}
	parent := server(ts, args[0]).cmd.Process.Pid
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		all := childrenOf(parent)
		for _, pid := range all {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended this moment
		}
		if len(all) > 0 {
			return
		}
		if time.Since(began) > patience {
			ts.Fatalf("%s has no process that converts", args[0])
		}
	}
}

// childrenOf are the processes whose parent is pid (proc(5), stat: after the
// command in parentheses come the state and the parent).
func childrenOf(pid int) (all []int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range stats {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(text[bytes.LastIndexByte(text, ')')+1:]), " ")
		var state string
		var parent int
		if n, _ := fmt.Sscan(rest, &state, &parent); n != 2 || parent != pid || state == "Z" {
			continue
		}
		if child, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil {
			all = append(all, child)
		}
	}
	return all
}

// nobody is a user who owns nothing and may do nothing special.
const nobody = 65534

// dropRoot is `noroot`: from here on programs are started as a user who
// may not read what its file modes forbid. The script's files become that
// user's; the folders above them, and the program, can be reached by everyone.
func dropRoot(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: noroot")
	}
	if os.Getuid() != 0 {
		return // it is one already
	}
	work := ts.MkAbs(".")
	ts.Check(filepath.WalkDir(work, func(name string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(name, nobody, nobody)
	}))
	for _, dir := range []string{work, filepath.Dir(lookPath(ts, "millrace"))} {
		for ; dir != filepath.Clean(os.TempDir()) && dir != "/"; dir = filepath.Dir(dir) {
			info, err := os.Stat(dir)
			ts.Check(err)
			ts.Check(os.Chmod(dir, info.Mode().Perm()|0o055))
		}
	}
	ts.Setenv(runAs, strconv.Itoa(nobody))
}

// runAs is the variable of a script that dropRoot sets.
const runAs = "RUN_AS"

// credentials are those that a script's programs get; nil: those of the tests.
func credentials(ts *testscript.TestScript) *syscall.SysProcAttr {
	id, err := strconv.ParseUint(ts.Getenv(runAs), 10, 32)
	if err != nil {
		return nil
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(id), Gid: uint32(id)}}
}
