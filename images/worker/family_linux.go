package worker

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxFamily bounds how many processes below one are looked at: a worker has one
// command at a time, which may be a script that starts the encoder.
const maxFamily = 64

// family are the processes that a process has started and that live, with those
// that they have started. Nothing where the kernel does not list children
// (CONFIG_PROC_CHILDREN).
func family(pid int) []int {
	all := []int{pid}
	for i := 0; i < len(all) && len(all) < maxFamily; i++ {
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", all[i]))
		if err != nil {
			break
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				continue // the thread has ended
			}
			for child := range strings.FieldsSeq(string(text)) {
				if c, err := strconv.Atoi(child); err == nil {
					all = append(all, c)
				}
			}
		}
	}
	return all[1:]
}

// killFamily kills the groups of their own that a worker's commands have, each
// with all that the command has started. A worker's death would end the command
// alone: what a script has started would go on for ever. The worker is stopped,
// to be killed next: it shall neither take its command's end for the image's
// fault nor reap it, which would make its number another's.
func killFamily(pid int) {
	_ = unix.Kill(-pid, unix.SIGSTOP)
	for _, c := range family(pid) {
		if group, err := unix.Getpgid(c); err == nil && group == c {
			killGroup(c)
		}
	}
}
