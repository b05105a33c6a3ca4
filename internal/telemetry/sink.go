package telemetry

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// sink is what the audit is written to. It is used by one goroutine.
type sink struct {
	path string    // "" where out is given
	out  io.Writer // the file, else what was given

	file *os.File
	info fs.FileInfo
	part int // bytes of a line that the file has the beginning of
}

// open opens the file, and creates it for its owner alone.
func (s *sink) open() error {
	if s.path == "" {
		return nil
	}
	if info, err := os.Stat(s.path); err == nil && info.Mode()&fs.ModeNamedPipe != 0 {
		return fmt.Errorf("%s is a pipe: give a file, or stderr", s.path)
	}
	file, err := os.OpenFile(s.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w; make its folder first", err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w; let this user write there", err)
	case err != nil:
		return err
	}
	info, err := file.Stat()
	if err != nil {
		file.Close()
		return err
	}
	s.close()
	s.file, s.info, s.out, s.part = file, info, file, 0
	return nil
}

// follow opens the file anew if another one, or none, has its name by now.
func (s *sink) follow() error {
	if s.path == "" {
		return nil
	}
	if now, err := os.Stat(s.path); err == nil && os.SameFile(now, s.info) {
		return nil
	}
	return s.open()
}

// write writes lines, and returns how much of them is done with: whole lines, and
// how many those are. A line that was begun is gone on with, or written anew where
// the file is another one.
func (s *sink) write(lines []byte) (done, count int, err error) {
	if err := s.follow(); err != nil {
		return 0, 0, err
	}
	n, err := s.out.Write(lines[s.part:])
	n += s.part
	done = bytes.LastIndexByte(lines[:n], '\n') + 1
	s.part = n - done
	return done, bytes.Count(lines[:done], []byte{'\n'}), err
}

func (s *sink) close() {
	if s.file != nil {
		_ = s.file.Close()
	}
}
