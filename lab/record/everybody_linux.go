package record

import "strings"

func readEverybody() (map[int]Usage, error) {
	pids, err := processes()
	if err != nil {
		return nil, err
	}
	var buf []byte
	all := make(map[int]Usage, len(pids))
	for _, pid := range pids {
		text, err := readFile(procFile(pid, "stat"), &buf)
		if err != nil {
			continue // it has ended, or is not ours to see
		}
		s, err := parseStat(text)
		if err != nil {
			continue
		}
		line := string(text)
		name := line[strings.IndexByte(line, '(')+1 : strings.LastIndexByte(line, ')')]
		all[pid] = Usage{PID: pid, Name: name, CPU: s.User + s.System, parent: s.Parent, start: s.Start}
	}
	return all, nil
}
