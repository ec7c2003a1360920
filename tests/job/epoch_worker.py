"""A worker of the case `respawned-workers`: answers each line with itself, once it has imported as much as a real one."""

# pylint: disable=unused-import
import asyncio
import cProfile
import concurrent.futures.process
import csv
import ctypes.util
import decimal
import difflib
import doctest
import email.mime.multipart
import fractions
import ftplib
import http.cookiejar
import http.server
import imaplib
import importlib.metadata
import logging.config
import mailbox
import multiprocessing.managers
import optparse
import pdb
import plistlib
import pydoc
import smtplib
import sqlite3
import statistics
import sys
import tarfile
import unittest.mock
import venv
import wsgiref.simple_server
import xml.dom.minidom
import xml.sax.expatreader
import xmlrpc.server
import zipfile
import zoneinfo

from PIL import Image


def main():
    # The modules of all file formats.
    Image.init()
    for line in sys.stdin:
        print(line.strip(), flush=True)


if __name__ == "__main__":
    main()
