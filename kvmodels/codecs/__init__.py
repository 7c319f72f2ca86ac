"""Codecs: conversion of values to bytes and back."""
