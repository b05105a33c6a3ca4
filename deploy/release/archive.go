package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"time"
)

// archiveName is the name of what a release has for one system, without its ending.
func (b *build) archiveName(t target) string {
	return "fsm-proxy_" + b.version.tag + "_" + t.os + "_" + t.arch
}

// archives writes one archive for each system: a zip for Windows, else a tar.gz.
func (b *build) archives() error {
	for _, t := range b.targets {
		name := b.archiveName(t)
		files := []file{{name: name + "/" + t.program(), mode: 0o755, data: t.binary}}
		for _, f := range b.shared {
			f.name = name + "/" + f.name
			files = append(files, f)
		}
		pack, ending := tarball, ".tar.gz"
		if t.os == "windows" {
			pack, ending = zipped, ".zip"
		}
		data, err := pack(files, b.time)
		if err != nil {
			return err
		}
		if err := b.write(name+ending, data); err != nil {
			return err
		}
	}
	return nil
}

// tarball is a tar.gz of files that belong to root.
func tarball(files []file, changed time.Time) ([]byte, error) {
	var out bytes.Buffer
	archive := tar.NewWriter(&out)
	for _, f := range files {
		header := &tar.Header{Name: f.name, Mode: int64(f.mode), Size: int64(len(f.data)), ModTime: changed, Uname: "root", Gname: "root"}
		if err := archive.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := archive.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	return gzipped(out.Bytes())
}

func gzipped(data []byte) ([]byte, error) {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	err := w.Close()
	return out.Bytes(), err
}

// zipped is a zip file, which a wheel is, too.
func zipped(files []file, changed time.Time) ([]byte, error) {
	var out bytes.Buffer
	archive := zip.NewWriter(&out)
	for _, f := range files {
		header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: changed}
		header.SetMode(f.mode)
		w, err := archive.CreateHeader(header)
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	err := archive.Close()
	return out.Bytes(), err
}
